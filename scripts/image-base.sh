#!/bin/sh
# Makes the image that deploy/Dockerfile builds on, where no registry can be reached: Debian's smallest system, by
# debootstrap, from the packages that apt-get knows.
#
#   scripts/image-base.sh [NAME]      as root; NAME is what FROM asks for, default: debian:bookworm-slim
#
# The daemon is the one that DOCKER_HOST names. An image that is there already is left alone. The result is like the
# registry's image of that name, not the same: pin BASE by digest where it matters.
set -eu
umask 022

NAME=${1-debian:bookworm-slim}

fail() {
    echo "image-base: $1" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

if docker image inspect "$NAME" >/dev/null 2>&1; then
    echo "$NAME is there already"
    exit
fi
if [ "$(id -u)" != 0 ]; then fail "debootstrap needs root"; fi
for tool in docker debootstrap; do
    if ! has $tool; then fail "there is no $tool; apt-get install docker.io debootstrap"; fi
done

codename=${NAME#*:}
codename=${codename%-slim}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase "$codename" "$root/system" >"$root/log" 2>&1 ||
    fail "debootstrap could not make $codename: $(tail -n 1 "$root/log")"

# As the slim images do: no package files, lists, manuals or translations.
cd "$root/system"
rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* var/log/* usr/share/man/* usr/share/info/* usr/share/locale/*
find usr/share/doc -type f ! -name copyright -delete
tar --one-file-system -c . | docker import - "$NAME" >/dev/null
echo "$NAME made"
