#!/usr/bin/env bash
# The same requests to a newer kernel's zram and to ramfold's tree; prints where they differ.
#
# usage: zram-attributes.sh [-v] KERNEL_DIR RAMFOLD [ALLOW_LIST]
#   KERNEL_DIR  as fetch-kernel.sh prints it; RAMFOLD the binary
#   ALLOW_LIST  differences that are documented, default zram-attributes.allow beside this script
#   -v          prints the allowed differences as well
#
# RAMFOLD_GUEST_SECONDS: limit for everything, 900 unless set.
#
# Exit status: 0 no difference that is not allowed, 1 some, 77 a tool is missing, else boot.sh's.
# Where the kernel is another version than the list is for, differences are printed and are no
# failure: they are the kernel's own, or ramfold's, and somebody has to look.

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)

verbose=no
if [ "${1-}" = -v ]; then
    verbose=yes
    shift
fi
if [ $# -lt 2 ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
kernel=$1
ramfold=$2
allow=${3:-$here/zram-attributes.allow}
tools=(losetup blkdiscard fallocate mke2fs)
for tool in cc "${tools[@]}"; do
    if ! command -v "$tool" > /dev/null; then
        printf 'skipped: needs %s\n' "$tool" >&2
        exit 77
    fi
done
mapfile -t tools < <(for tool in "${tools[@]}"; do command -v "$tool"; done)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 -o "$work/wr" "$here/wr.c"
status=0
"$here/boot.sh" -t "${RAMFOLD_GUEST_SECONDS:-900}" -m 1536 "$kernel" \
    "$here/zram-attributes.guest" "ramfold=$ramfold" "$work/wr" "${tools[@]}" \
    > "$work/out" || status=$?
if [ $status != 0 ]; then
    cat "$work/out"
    exit $status
fi
if ! grep -aq '^compared [0-9]' "$work/out"; then
    cat "$work/out"
    printf 'the comparison did not come to its end\n' >&2
    exit 125
fi

grep -av '^DIFFERS' "$work/out" || true
grep -a '^DIFFERS' "$work/out" > "$work/differences" || true
grep -vE '^(#|$)' "$allow" | cut -f1 > "$work/patterns" || true
real=0 allowed=0
while IFS= read -r line; do
    if [ -s "$work/patterns" ] && grep -aqE -f "$work/patterns" <<< "$line"; then
        allowed=$((allowed + 1))
        [ $verbose = no ] || printf 'allowed: %s\n' "${line#DIFFERS }"
    else
        real=$((real + 1))
        printf '%s\n' "$line"
    fi
done < "$work/differences"

gone=0
while IFS= read -r pattern; do
    if ! grep -aqE "$pattern" "$work/differences"; then
        gone=$((gone + 1))
        printf 'allowed, and not seen: %s\n' "$pattern"
    fi
done < "$work/patterns"

printf '%d differences, %d that are documented, %d documented ones gone\n' $real $allowed $gone
compared=$(cat "$kernel/version")
listed=$(sed -n 's/^#.* For Linux \([0-9.]*\)\.$/\1/p' "$allow")
case $compared in
    "$listed"[.-]*) [ $((real + gone)) = 0 ] ;;
    *) printf 'the list is for Linux %s, and this is %s: look at them\n' "$listed" "$compared" ;;
esac
