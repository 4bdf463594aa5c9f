#!/usr/bin/env bash
# Boots a kernel in QEMU, runs a script in it as root, prints what it says and ends with its status.
#
# usage: boot.sh [OPTIONS] KERNEL_DIR SCRIPT [FILE...] [-- QEMU_ARGUMENT...]
#   KERNEL_DIR     as fetch-kernel.sh prints it
#   SCRIPT         for sh; starts in /files, which is in PATH and holds the FILEs
#   FILE           a program (its libraries come along), a file or a directory; NAME=PATH names it
#   -t SECONDS     limit for everything, default 120
#   -m MIB         memory, default 1024
#   -c CPUS        default 2
#   -k "MODULE..." modules to bring beside the usual ones
#   -a "ARGUMENT..." kernel arguments
#   -l FILE        keeps the console (kernel messages) there
#
# Exit status: the script's, or 124 past the limit, 125 if the guest ended without a word (its
# console is printed), 77 if a tool is missing here. RAMFOLD_GUEST_ACCEL=kvm where that works.

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

seconds=120 memory=1024 cpus=2 extra_modules='' arguments='' console=''
while getopts t:m:c:k:a:l: option; do
    case $option in
        t) seconds=$OPTARG ;;
        m) memory=$OPTARG ;;
        c) cpus=$OPTARG ;;
        k) extra_modules=$OPTARG ;;
        a) arguments=$OPTARG ;;
        l) console=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -lt 2 ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
kernel=$1
script=$2
shift 2
files=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    files+=("$1")
    shift
done
[ $# -eq 0 ] || shift

for tool in qemu-system-x86_64 cpio modprobe depmod busybox ldd; do
    if ! command -v "$tool" > /dev/null; then
        printf 'skipped: needs %s\n' "$tool" >&2
        exit 77
    fi
done
version=$(cat "$kernel/version")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,usr,lib,lib64,files,proc,sys,dev,tmp,run,mnt,etc,root} \
    "$root/lib/modules/$version"
ln -s ../bin "$root/usr/bin"
ln -s ../sbin "$root/usr/sbin"
ln -s ../lib "$root/usr/lib"

# The libraries a program needs: where they are here, or in /files if that is no system directory.
libraries() {
    local library place
    { ldd "$1" 2> /dev/null || true; } | sed -n 's#^[^/]*\(/[^ ]*\) (.*#\1#p' \
        | while read -r library; do
            case $library in
                /lib* | /usr/lib*) place=$root$library ;;
                *) place=$root/files/${library##*/} ;;
            esac
            if [ ! -e "$place" ]; then
                mkdir -p "${place%/*}"
                cp -L "$library" "$place"
            fi
        done
}

install_program() {
    cp -L "$1" "$2"
    libraries "$1"
}

busybox=$(command -v busybox)
install_program "$busybox" "$root/bin/busybox"
"$busybox" --list | grep -vxE 'busybox|init|sh|modprobe' | while read -r applet; do
    ln -sf /bin/busybox "$root/bin/$applet"
done
# Busybox's own shell would prefer its applets to the FILEs, and its modprobe knows no compressed
# modules.
install_program /bin/sh "$root/bin/sh"
install_program "$(command -v modprobe)" "$root/sbin/modprobe"
for file in "${files[@]}"; do
    name=${file##*/}
    case $file in
        *=*)
            name=${file%%=*}
            file=${file#*=}
            ;;
    esac
    if [ ! -e "$file" ]; then
        printf 'no such file: %s\n' "$file" >&2
        exit 2
    fi
    cp -rL "$file" "$root/files/$name"
    if [ ! -d "$file" ]; then
        libraries "$file"
        strip --strip-debug "$root/files/$name" 2> /dev/null || true
    fi
done
cp "$script" "$root/script.sh"

modules="virtio_pci zram lz4hc zstd lzo-rle lzo deflate loop brd fuse ext4 $extra_modules"
for module in $modules; do
    { modprobe -d "$kernel" -S "$version" --show-depends "$module" 2> /dev/null || true; } \
        | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | sort -u | while read -r module; do
    place=$root${module#"$kernel"}
    mkdir -p "${place%/*}"
    cp "$module" "$place"
done
lists=("$kernel/lib/modules/$version"/modules.{builtin,builtin.modinfo,order})
cp "${lists[@]}" "$root/lib/modules/$version/" 2> /dev/null || true
depmod -b "$root" "$version" 2> /dev/null

cat > "$root/init" << 'INIT'
#!/bin/sh
export PATH=/files:/sbin:/bin LD_LIBRARY_PATH=/files HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
echo 'root:x:0:0:root:/root:/bin/sh' > /etc/passwd
ip link set lo up
stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
cd /files
sh /script.sh < /dev/null > /dev/ttyS1 2>&1
echo "exit $?" > /dev/ttyS2
sync
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) > "$work/initramfs"

status=0
timeout -k 5 "$seconds" qemu-system-x86_64 \
    -accel "${RAMFOLD_GUEST_ACCEL:-tcg,thread=multi}" -cpu max -smp "$cpus" -m "$memory" \
    -machine q35 -display none -vga none -nic none -monitor none -no-reboot \
    -kernel "$kernel/vmlinuz" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 $arguments" \
    -serial file:"$work/console" -serial stdio -serial file:"$work/status" "$@" \
    < /dev/null || status=$?
[ -z "$console" ] || cp "$work/console" "$console"
if [ "$status" = 124 ] || [ "$status" = 137 ]; then
    printf 'the guest was stopped after %s seconds\n' "$seconds" >&2
    exit 124
fi
result=$(sed -n 's/^exit \([0-9]*\).*/\1/p' "$work/status" 2> /dev/null)
if [ -z "$result" ]; then
    tail -30 "$work/console" >&2
    printf 'the guest ended without an exit status (qemu: %s)\n' "$status" >&2
    exit 125
fi
exit "$result"
