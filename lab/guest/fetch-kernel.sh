#!/usr/bin/env bash
# Downloads a Debian kernel with its modules, unpacks it, and prints the directory boot.sh takes.
#
# usage: fetch-kernel.sh [-u] [-s SUITE] [CACHE_DIR]
#   -u         look for a newer one even if one is cached
#   -s SUITE   of this suite and no other, as bookworm-backports; implies -u. It is cached apart,
#              so that it does not stand in for the newest one later
#   CACHE_DIR  default: $XDG_CACHE_HOME/ramfold-guest, or ~/.cache/ramfold-guest
#
# Takes the newest plain amd64 kernel of sid, else of this release's backports, else of this
# release. The mirror, its proxy and its keys are those of this machine's own apt configuration.
# Nothing is installed and apt's own lists are not touched, so no privilege is needed. Exit status
# 77: this machine has no Debian mirror or lacks a tool, and nothing is cached.

set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

update=no suites=''
while getopts us: option; do
    case $option in
        u) update=yes ;;
        s) update=yes suites=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
cache=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/ramfold-guest}${suites:+/$suites}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

skip() {
    printf 'skipped: needs %s\n' "$*" >&2
    exit 77
}

newest_cached() {
    find "$cache" -mindepth 2 -maxdepth 2 -path '*/kernel-*/complete' -printf '%h\n' 2> /dev/null \
        | sort -V | tail -1 || true
}

cached=$(newest_cached)
if [ -n "$cached" ] && [ $update = no ]; then
    printf '%s\n' "$cached"
    exit
fi
for tool in apt-get dpkg-deb depmod; do
    command -v "$tool" > /dev/null || skip "$tool to fetch a kernel"
done
release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME-}")
mirror=$(apt-get update --print-uris 2> /dev/null \
    | sed -n "s#^'\(.*\)/dists/$release/InRelease'.*#\1#p" | head -1)
[ -n "$mirror" ] && [ -e $keys ] || skip "a Debian mirror in apt's sources to fetch a kernel"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache" "$work"/{state/lists/partial,cache/archives/partial,etc,packages}
touch "$work/state/status"

# apt, with sources, lists and cache of its own; proxies and certificates as configured here.
private() {
    local command=$1
    shift
    timeout 300 "$command" -qq \
        -o Dir::Etc::sourcelist="$work/etc/sources.list" -o Dir::Etc::sourceparts=/nonexistent \
        -o Dir::State="$work/state" -o Dir::State::status="$work/state/status" \
        -o Dir::Cache="$work/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" \
        -o Acquire::Languages=none -o Acquire::Retries=2 \
        -o APT::Architecture=amd64 -o APT::Architectures=amd64 "$@"
}

newest_in_lists() {
    private apt-cache pkgnames linux-image- \
        | grep -E '^linux-image-[0-9][0-9a-z.+~-]*-amd64$' | grep -vE -- '-(rt|cloud)-' \
        | sort -V | tail -1 || true
}

# The packages of one kernel: the image and what it needs of the same version.
parts_of() {
    private apt-cache depends --recurse --no-recommends --no-suggests "$1" \
        | awk -v version="${1#linux-image-}" \
            '/^linux-/ && substr($1, length($1) - length(version)) == "-" version' \
        | sort -u
}

download() {
    local parts
    mapfile -t parts < <(parts_of "$1")
    (cd "$work/packages" && private apt-get download "${parts[@]}" >&2)
}

image=''
for suite in ${suites:-sid "$release-backports" "$release"}; do
    printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$suite" > "$work/etc/sources.list"
    private apt-get update >&2 || continue
    image=$(newest_in_lists)
    [ -n "$image" ] && download "$image" && break
    image=''
done
if [ -z "$image" ]; then
    if [ -z "$suites" ] && [ -n "$cached" ]; then
        printf '%s\n' "$cached"
        exit
    fi
    printf 'no suite of the mirror gave a kernel\n' >&2
    exit 1
fi

version=${image#linux-image-}
target=$cache/kernel-$version
if [ -e "$target/complete" ]; then
    printf '%s\n' "$target"
    exit
fi
# Image, modules and their lists come in one package or several, below /boot, /lib or /usr/lib.
for package in "$work"/packages/*.deb; do
    dpkg-deb -x "$package" "$work/tree"
done
mkdir -p "$work/kernel/lib/modules/$version"
find "$work/tree" -type d -path "*/lib/modules/$version" \
    -exec cp -a {}/. "$work/kernel/lib/modules/$version" \;
for file in vmlinuz config; do
    found=$(find "$work/tree" -type f \
        \( -name "$file-$version" -o -path "*/$version/$file" \) | head -1)
    [ -z "$found" ] || cp "$found" "$work/kernel/$file"
done
if [ ! -e "$work/kernel/vmlinuz" ] || [ ! -d "$work/kernel/lib/modules/$version/kernel" ]; then
    printf '%s: no kernel or no modules in it\n' "$image" >&2
    exit 1
fi
depmod -b "$work/kernel" "$version" 2> /dev/null
printf '%s\n' "$version" > "$work/kernel/version"
touch "$work/kernel/complete"
rm -rf "$target"
mv "$work/kernel" "$target"
printf '%s\n' "$target"
