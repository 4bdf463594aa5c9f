#!/usr/bin/env bash
# Runs `ramfold serve --ublk` in a guest: ext4 with fio, fsck and fstrim, swap, and a server that is
# stopped while its disk is in use, and one that is killed under load.
#
# usage: ublk.sh KERNEL_DIR RAMFOLD [PART...]
#   KERNEL_DIR  as fetch-kernel.sh prints it; Linux 6.5 or later with ublk_drv
#   PART        disk, swap, killed; default: all
#
# Exit status: 0 all is well, 1 something is not, 77 a tool is missing, else boot.sh's.

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
kernel=$1
ramfold=$2
shift 2
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(disk swap killed)

for tool in qemu-system-x86_64 fio mke2fs e2fsck blkdiscard mkswap swapon; do
    if ! command -v "$tool" > /dev/null; then
        printf 'skipped: needs %s\n' "$tool" >&2
        exit 77
    fi
done
if [ -z "$(find "$kernel/lib/modules" -name 'ublk_drv.ko*')" ]; then
    printf 'skipped: needs a kernel with ublk_drv; fetch-kernel.sh -u looks for a newer one\n' >&2
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for part in "${parts[@]}"; do
    printf '== %s\n' "$part"
    printf '%s\n' "$part" > "$work/part"
    programs=()
    memory=1536
    case $part in
        disk) programs=("$(command -v fio)" "$(command -v mke2fs)" "$(command -v e2fsck)"
            "$(command -v blkdiscard)") ;;
        swap) programs=("$(command -v mkswap)" "$(command -v swapon)") ;;
    esac
    status=0
    # The guest's root is memory. As ramfs it is never swapped, and the server's program is in it.
    "$here/boot.sh" -t 240 -l "$work/console" -a rootfstype=ramfs -m "$memory" -k ublk_drv "$kernel" "$here/ublk.guest" \
        part="$work/part" ramfold="$ramfold" "${programs[@]}" || status=$?
    [ "$status" != 77 ] || exit 77
    if [ "$status" != 0 ]; then
        touch "$work/failed"
        tail -20 "$work/console" >&2
    fi
done
[ ! -e "$work/failed" ]
