#!/bin/sh
# A runsc (gVisor) for tests, without installing it: what Debian's backports have, unpacked below a directory.
#
#   scripts/gvisor.sh DIRECTORY    prints RINGFENCE_RUNSC_PATH; does nothing if it is there already
#
# Debian 12's own runsc is of 2022, and `ls` does not work in it. The package comes from the mirror that apt-get uses on this
# machine, and is checked by apt-get against the same keys; the machine's own lists and packages stay as they are.
set -eu
umask 022

if [ $# != 1 ]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
HERE=$(cd "$1" && pwd)
LOG=$HERE/install.log
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
    echo "gvisor: $1" >&2
    exit 1
}

apt() {
    command=$1
    shift
    "$command" -o Dir::Etc::sourcelist="$HERE/apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root \
        -o Dir::State::lists="$HERE/apt/lists" -o Dir::Cache="$HERE/apt/cache" -o Debug::NoLocking=1 "$@" 2>>"$LOG"
}

unpack() {
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
    [ -n "$codename" ] || fail "this is no release of Debian"
    # shellcheck disable=SC2016 # apt-get's own words, not the shell's
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $codename" | head -n 1)
    [ -n "$mirror" ] || fail "apt-get knows no mirror of $codename"
    mkdir -p "$HERE/apt/lists/partial" "$HERE/apt/cache/archives/partial"
    echo "deb [signed-by=$KEYS] $mirror $codename-backports main" >"$HERE/apt/sources.list"
    (
        cd "$HERE/apt"
        apt apt-get -qq update >>"$LOG"
        apt apt-get -qq download runsc >>"$LOG"
    ) || fail "$codename-backports has no runsc for us; see $LOG"
    dpkg -x "$HERE"/apt/runsc_*.deb "$HERE/unpacked"
    rm -rf "$HERE/apt"
    mv "$HERE/unpacked/usr/bin/runsc" "$HERE/runsc"
    rm -rf "$HERE/unpacked"
}

if [ ! -x "$HERE/runsc" ]; then unpack; fi
echo "RINGFENCE_RUNSC_PATH=$HERE/runsc"
