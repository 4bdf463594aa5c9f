#!/usr/bin/env bash
# Runs the tests of regions, and those of their forked children, on another kernel.
#
# usage: regions.sh KERNEL_DIR [TEST...]
#   KERNEL_DIR  as fetch-kernel.sh prints it; `fetch-kernel.sh -s bullseye` has Linux 5.10, which
#               has no userfaultfd that folds
#   TEST        names of test programs; default: all of the crate, and host's of forks and spans
#
# RAMFOLD_GUEST_SECONDS: limit for everything, 3600 unless set.
#
# Exit status: 0 all passed, 1 some did not, 77 a tool is missing, else boot.sh's.

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
kernel=$1
shift

cd "$here/../.."
programs() {
    cargo test --locked --no-run "$@" 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}
mapfile -t built < <(programs -p ramfold-region --tests
    programs -p ramfold-host --test forks --test span)
[ ${#built[@]} -gt 0 ] || { echo 'the tests do not build' >&2; exit 1; }

files=()
for program in "${built[@]}"; do
    name=$(basename "$program")
    name=${name%-*}
    if [ $# -eq 0 ] || [[ " $* " == *" $name "* ]]; then
        files+=("tests-$name=$(realpath "$program")")
    fi
done
exec "$here/boot.sh" -t "${RAMFOLD_GUEST_SECONDS:-3600}" -m 6144 \
    "$kernel" "$here/regions.guest" "${files[@]}"
