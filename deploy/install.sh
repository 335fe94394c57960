#!/bin/sh
# Fills the sandbox image; deploy/Dockerfile runs it once, as root, in one layer. Its arguments are the environment.
#
# Two builds with the same arguments and the same packages leave the same files: what differs from build to build is
# removed, and what is new gets the time of SOURCE_DATE_EPOCH.
set -eu
export DEBIAN_FRONTEND=noninteractive

main() {
    touch /tmp/started
    if [ -n "$SNAPSHOT" ]; then use_snapshot; fi
    install_packages
    if [ -n "$CA_CERTIFICATE" ]; then trust_for_this_build; fi
    # shellcheck disable=SC2086 # a list of words
    if [ -n "$PIP_PACKAGES" ]; then pip_install $PIP_PACKAGES; fi
    if [ -n "$DATA" ]; then pip_install --require-hashes --requirement "${0%/*}/requirements-sandbox.txt"; fi
    make_user
    remove_set_id_bits
    remove_what_differs
    set_times
}

# Signatures of an old snapshot still hold; only the date until which they count has passed.
use_snapshot() {
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
    for archive in "debian $codename" "debian $codename-updates" "debian-security $codename-security"; do
        place=http://snapshot.debian.org/archive/${archive%% *}/$SNAPSHOT
        echo "deb [check-valid-until=no] $place ${archive#* } main"
    done >/etc/apt/sources.list
}

install_packages() {
    python=
    if ! command -v python3 >/dev/null; then python='python3 python3-pip python3-venv'; fi
    apt-get update -qq
    # shellcheck disable=SC2086 # lists of words
    apt-get install -qq -y --no-install-recommends $PACKAGES $python >/dev/null
}

trust_for_this_build() {
    export PIP_CERT=/tmp/certificates
    { cat /etc/ssl/certs/ca-certificates.crt; echo "$CA_CERTIFICATE"; } >"$PIP_CERT"
}

# Debian marks its Python as its own; this image is nobody's system.
pip_install() {
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --no-cache-dir --no-compile --root-user-action=ignore "$@"
}

make_user() {
    if ! getent group "$USER_ID" >/dev/null; then groupadd --gid "$USER_ID" sandbox; fi
    if ! getent passwd "$USER_ID" >/dev/null; then
        useradd --uid "$USER_ID" --gid "$USER_ID" --create-home --shell /bin/bash sandbox
    fi
    mkdir -p /workspace /output
    chown "$USER_ID:$USER_ID" /workspace /output
}

# Nobody inside is to become somebody else.
remove_set_id_bits() { find / -xdev -type f -perm /6000 -exec chmod a-s {} +; }

# Logs, caches, the package manager's memory, compiled Python (it holds times), the day on which a password was set.
remove_what_differs() {
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/cache/ldconfig/aux-cache \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/* /root/.cache \
        /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-
    find / -xdev -type d -name __pycache__ -prune -exec rm -rf {} +
    sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:0:/' /etc/shadow
}

set_times() {
    # The three are mounts of the build's container; they are not in the image.
    find / -xdev \( -path /proc -o -path /sys -o -path /dev \) -prune -o -newer /tmp/started \
        -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    rm -f /tmp/started /tmp/certificates
    # The directory of this script was made by COPY, before the start.
    touch --date "@$SOURCE_DATE_EPOCH" /tmp "${0%/*}"
}

main
