#!/bin/sh
# A Docker engine of our own for tests and benchmarks, apart from any other on the machine.
#
#   scripts/docker-engine.sh up DIRECTORY [IMAGE]   as root: starts dockerd, makes the image, prints DOCKER_HOST
#   scripts/docker-engine.sh down DIRECTORY         ends that dockerd; what it keeps in the directory stays
#   scripts/docker-engine.sh archive DIRECTORY      as root: makes only the archive of the image, DIRECTORY/rootfs.tar
#
# Data, state, socket and log of the daemon lie below DIRECTORY. IMAGE (default: ringfence/test) is made by debootstrap from
# the packages that apt-get knows: Debian's smallest, with bash, git, ssh and python3. Its archive is kept for the next time. If
# docker.io or debootstrap are missing, they are installed. RINGFENCE_DOCKER_GROUP=GID lets a group use the socket: whoever
# is in it has root's power. RINGFENCE_RUNSC_PATH registers a runsc as the runtime of that name.
set -eu
umask 022

main() {
    if [ $# -lt 2 ]; then usage; fi
    command=$1
    mkdir -p "$2"
    HERE=$(cd "$2" && pwd)
    IMAGE=${3-ringfence/test}
    SOCKET=$HERE/docker.sock
    PIDFILE=$HERE/dockerd.pid
    LOG=$HERE/install.log
    case $command in
    up) up ;;
    down) down ;;
    archive) archive ;;
    *) usage ;;
    esac
}

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "docker-engine: $1" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }
quietly() { "$@" >>"$LOG" 2>&1; }
ours() { docker --host "unix://$SOCKET" "$@"; }

up() {
    if [ "$(id -u)" != 0 ]; then fail "only root can start a dockerd"; fi
    : >>"$LOG"
    install_docker || fail "apt-get could not install docker.io and debootstrap; see $LOG"
    start_dockerd || fail "dockerd did not start; see $HERE/dockerd.log"
    make_image || fail "debootstrap could not make the image; see $LOG"
    echo "DOCKER_HOST=unix://$SOCKET"
    echo "RINGFENCE_DOCKER_IMAGE=$IMAGE"
}

install_docker() {
    if has dockerd && has debootstrap && has docker; then return; fi
    export DEBIAN_FRONTEND=noninteractive
    lock_wait='-o DPkg::Lock::Timeout=300'
    # RUNLEVEL=1: packages then do not start their services; the system's own dockerd is not ours to start.
    # shellcheck disable=SC2086 # a list of words
    quietly apt-get $lock_wait update -qq &&
        RUNLEVEL=1 quietly apt-get $lock_wait install -qq -y --no-install-recommends docker.io debootstrap iptables
}

# No bridge and no firewall rules: boxes have no network.
start_dockerd() {
    if is_dockerd_alive; then return; fi
    # One that was killed may have left its number, and that of its containerd: dockerd would wait for that one to answer.
    rm -f "$PIDFILE" "$SOCKET" "$HERE/exec/containerd/containerd.pid"
    settings >"$HERE/daemon.json" # or else those of the system's daemon would hold
    setsid dockerd --data-root "$HERE/data" --exec-root "$HERE/exec" --host "unix://$SOCKET" --pidfile "$PIDFILE" \
        --config-file "$HERE/daemon.json" --bridge none --iptables=false --ip-masq=false \
        --group "${RINGFENCE_DOCKER_GROUP:-0}" >"$HERE/dockerd.log" 2>&1 </dev/null &
    started=$!
    for _ in $(seq 60); do
        if quietly ours version; then return; fi
        if ! kill -0 $started 2>/dev/null; then return 1; fi
        sleep 0.5
    done
    down
    return 1
}

# gVisor as docs/docker.md tells everybody to register it; and one that claims a kernel of its own and has none, for the test
# that finds it out.
settings() {
    gvisor=
    if [ -n "${RINGFENCE_RUNSC_PATH-}" ]; then
        gvisor="\"runsc\": {\"path\": \"$RINGFENCE_RUNSC_PATH\", \"runtimeArgs\": [\"--network=none\", \"--directfs=false\"]}, "
    fi
    echo "{\"runtimes\": {$gvisor\"krun\": {\"path\": \"runc\"}}}"
}

archive() {
    if [ "$(id -u)" != 0 ]; then fail "only root can make an image's files"; fi
    : >>"$LOG"
    install_docker || fail "apt-get could not install docker.io and debootstrap; see $LOG"
    make_archive || fail "debootstrap could not make the image; see $LOG"
}

make_image() {
    if quietly ours image inspect "$IMAGE"; then return; fi
    make_archive || return 1
    quietly ours import "$HERE/rootfs.tar" "$IMAGE"
}

make_archive() {
    archive=$HERE/rootfs.tar
    if [ ! -s "$archive" ]; then
        root=$HERE/rootfs
        codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
        rm -rf "$root"
        quietly debootstrap --variant=minbase --include=bash,git,openssh-client,python3,procps "$codename" "$root" || return 1
        rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
        tar -C "$root" --one-file-system -cf "$archive.part" . && mv "$archive.part" "$archive"
        rm -rf "$root"
    fi
}

# The number may have gone to another process since: it counts only if that one was started with our pidfile.
is_dockerd_alive() {
    [ -s "$PIDFILE" ] && tr '\0' '\n' <"/proc/$(cat "$PIDFILE")/cmdline" 2>/dev/null | grep -qxF "$PIDFILE"
}

down() {
    if ! is_dockerd_alive; then
        unmount_all
        echo "no daemon of ours is running"
        return
    fi
    pid=$(cat "$PIDFILE")
    kill "$pid"
    for _ in $(seq 60); do
        if ! is_dockerd_alive; then
            unmount_all
            echo "stopped"
            return
        fi
        sleep 0.5
    done
    fail "process $pid was told to end, and has not yet"
}

# What a daemon that was killed has left mounted. What of it still ends may hold a mount for a moment.
unmount_all() {
    cut -d ' ' -f 2 /proc/mounts | grep "^$HERE/" | sort -r | while read -r point; do
        for _ in $(seq 20); do
            if quietly umount "$point"; then continue 2; fi
            sleep 0.25
        done
        umount --lazy "$point" || true
    done
}

main "$@"
