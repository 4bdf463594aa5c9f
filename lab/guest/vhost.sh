#!/usr/bin/env bash
# Runs a virtual machine whose disk is `ramfold serve --vhost-user`: ext4 with fio, fsck and fstrim,
# swap, and a server that is stopped and killed under load.
#
# usage: vhost.sh KERNEL_DIR RAMFOLD [PART...]
#   KERNEL_DIR  as fetch-kernel.sh prints it; any kernel with virtio_blk
#   PART        disk, swap, stopped, killed; default: all
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
[ ${#parts[@]} -gt 0 ] || parts=(disk swap stopped killed)

for tool in qemu-system-x86_64 fio mke2fs e2fsck sha256sum python3; do
    if ! command -v "$tool" > /dev/null; then
        printf 'skipped: needs %s\n' "$tool" >&2
        exit 77
    fi
done

work=$(mktemp -d)
socket=$work/disk.sock
export XDG_RUNTIME_DIR=$work
# The process of the server is in a file, because the listener below is another shell.
end() { # SIGNAL
    local server
    server=$(cat "$work/server" 2> /dev/null) || return 0
    kill "-$1" "$server" 2> /dev/null || true
    while kill -0 "$server" 2> /dev/null; do sleep 0.1; done
    rm -f "$work/server"
}
cleanup() {
    end KILL
    rm -rf "$work"
}
trap cleanup EXIT

start() {
    "$ramfold" serve --size 512M --memory-limit 400M --vhost-user "$socket" \
        2>> "$work/said" > "$work/serving" &
    echo $! > "$work/server"
    disown
    local _
    for _ in $(seq 100); do
        [ -S "$socket" ] && "$ramfold" stat zram0 > /dev/null 2>&1 && return
        sleep 0.1
    done
    cat "$work/said" >&2
    return 1
}

stored() {
    "$ramfold" stat --json zram0 | python3 -c 'import json, sys
print(json.load(sys.stdin)["orig_data_size"] >> 20)'
}

# Does what the guest asks for, and shows the rest.
listen() {
    local line full=0
    while read -r line; do
        case $line in
            'host: stored full')
                full=$(stored)
                printf 'ok   MiB that are stored: %s\n' "$full"
                "$ramfold" stat zram0 | sed -n 2p
                ;;
            'host: stored trimmed')
                if [ "$(stored)" -gt $((full - 60)) ]; then
                    printf 'FAIL fstrim gave nothing back: %s MiB\n' "$(stored)"
                    touch "$work/failed"
                else
                    printf 'ok   MiB that are stored after fstrim: %s\n' "$(stored)"
                fi
                ;;
            'host: stop') end TERM ;;
            'host: kill') end KILL ;;
            'host: start') start ;;
            'status '*) printf '%s\n' "${line#status }" > "$work/status" ;;
            *) printf '%s\n' "$line" ;;
        esac
    done
}

for part in "${parts[@]}"; do
    printf '== %s\n' "$part"
    : > "$work/said"
    start
    printf '%s\n' "$part" > "$work/part"
    programs=()
    [ "$part" != disk ] || programs=("$(command -v fio)" "$(command -v mke2fs)" "$(command -v e2fsck)")
    memory=1024
    [ "$part" != swap ] || memory=512
    echo 1 > "$work/status"
    exec 3< <("$here/boot.sh" -t 180 -m "$memory" -k virtio_blk "$kernel" "$here/vhost.guest" \
        part="$work/part" "${programs[@]}" -- \
        -object "memory-backend-memfd,id=shared,size=${memory}M,share=on" \
        -machine memory-backend=shared \
        -chardev "socket,id=disk,path=$socket,reconnect=1" \
        -device vhost-user-blk-pci,chardev=disk,num-queues=2 2> "$work/qemu" && echo 'status 0' || echo "status $?")
    listen <&3
    exec 3<&-
    status=$(cat "$work/status")
    if [ "$status" != 0 ]; then
        cat "$work/qemu" >&2
        [ "$status" != 77 ] || exit 77
        touch "$work/failed"
    fi
    sed 's/^/server: /' "$work/said"
    end TERM
done
[ ! -e "$work/failed" ]
