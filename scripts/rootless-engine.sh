#!/bin/sh
# A rootless Docker engine of our own for tests, apart from any other on the machine.
#
#   scripts/rootless-engine.sh up DIRECTORY [IMAGE]          starts it, makes the image, prints what to set
#   scripts/rootless-engine.sh run DIRECTORY COMMAND...      runs a command as the engine's user, with that set
#   scripts/rootless-engine.sh down DIRECTORY                ends it; what it keeps in the directory stays
#
# Started by root, the engine is of a user that is made for it (ringfence-rootless) and removed when it ends; commands run
# as that user have to be able to read the checkout. Started by anybody else it is of that user, who needs entries in
# /etc/subuid and /etc/subgid. Root installs what is missing: docker.io, rootlesskit, uidmap. IMAGE (default: ringfence/test)
# is made from DIRECTORY/rootfs.tar; if there is none, root makes one as scripts/docker-engine.sh does.
set -eu
umask 022

USER_OF_IT=ringfence-rootless
UID_OF_IT=61988
SUBIDS=1900000000-1900065535 # far above what useradd hands out

main() {
    if [ $# -lt 2 ]; then usage; fi
    command=$1
    mkdir -p "$2"
    SCRIPTS=$(cd "$(dirname "$0")" && pwd)
    HERE=$(cd "$2" && pwd)
    SOCKET=$HERE/docker.sock
    STATE=$HERE/run/rootlesskit
    LOG=$HERE/install.log
    shift 2
    case $command in
    up) up "${1-ringfence/test}" ;;
    run) run "$@" ;;
    down) down ;;
    *) usage ;;
    esac
}

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "rootless-engine: $1" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }
quietly() { "$@" >>"$LOG" 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

up() {
    IMAGE=$1
    : >>"$LOG"
    install_all || fail "apt-get could not install docker.io, rootlesskit and uidmap; see $LOG"
    make_user || fail "the user $USER_OF_IT could not be made; see $LOG"
    mkdir -p "$HERE/run" "$HERE/home" "$HERE/tmp" "$HERE/data"
    chmod 700 "$HERE/run"
    if is_root; then chown "$UID_OF_IT:$UID_OF_IT" "$HERE" "$HERE/run" "$HERE/home" "$HERE/tmp" "$HERE/data"; fi
    start || fail "dockerd did not start; see $HERE/dockerd.log"
    make_image || fail "the image could not be made; see $LOG"
    settings
}

settings() {
    echo "DOCKER_HOST=unix://$SOCKET"
    echo "RINGFENCE_DOCKER_IMAGE=${IMAGE-ringfence/test}"
    echo "RINGFENCE_TEST_ROOTLESS=unix://$SOCKET"
}

install_all() {
    if has dockerd && has docker && has rootlesskit && has newuidmap; then return; fi
    if ! is_root; then fail "docker.io, rootlesskit and uidmap have to be installed"; fi
    export DEBIAN_FRONTEND=noninteractive
    # RUNLEVEL=1: packages then do not start their services; the system's own dockerd is not ours to start.
    quietly apt-get -o DPkg::Lock::Timeout=300 update -qq &&
        RUNLEVEL=1 quietly apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends docker.io rootlesskit uidmap
}

make_user() {
    if ! is_root || id "$USER_OF_IT" >/dev/null 2>&1; then return; fi
    quietly groupadd --gid "$UID_OF_IT" "$USER_OF_IT" &&
        quietly useradd --uid "$UID_OF_IT" --gid "$UID_OF_IT" --no-create-home --home-dir "$HERE/home" \
            --shell /usr/sbin/nologin "$USER_OF_IT" &&
        quietly usermod --add-subuids "$SUBIDS" --add-subgids "$SUBIDS" "$USER_OF_IT" &&
        : >"$HERE/user-is-ours"
}

# As the engine's user, with nothing of our environment.
as_user() {
    who=
    if is_root; then who="setpriv --reuid $UID_OF_IT --regid $UID_OF_IT --clear-groups"; fi
    # shellcheck disable=SC2046,SC2086 # lists of words
    $who env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$HERE/home" TMPDIR="$HERE/tmp" \
        XDG_RUNTIME_DIR="$HERE/run" $(settings) "$@"
}

# The host's network and no bridge: boxes have none either way, and the engine pulls nothing.
start() {
    if is_alive; then return; fi
    rm -rf "$STATE" "$SOCKET" "$HERE/dockerd.pid"
    echo '{}' >"$HERE/daemon.json" # or else those of the user's own daemon would hold
    inside='rm -f /run/docker /run/containerd /run/xtables.lock && exec dockerd --rootless "$@"'
    as_user setsid rootlesskit --state-dir="$STATE" --net=host --copy-up=/etc --copy-up=/run --propagation=rslave \
        sh -c "$inside" sh --data-root "$HERE/data" --exec-root "$HERE/run/exec" --host "unix://$SOCKET" \
        --pidfile "$HERE/dockerd.pid" --config-file "$HERE/daemon.json" --bridge none --iptables=false --ip-masq=false \
        >"$HERE/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 60); do
        if quietly as_user docker version; then return; fi
        sleep 0.5
    done
    down
    return 1
}

make_image() {
    if quietly as_user docker image inspect "$IMAGE"; then return; fi
    if [ ! -s "$HERE/rootfs.tar" ]; then
        if ! is_root; then fail "there is no $HERE/rootfs.tar; scripts/docker-engine.sh archive, as root, makes one"; fi
        "$SCRIPTS/docker-engine.sh" archive "$HERE" || return 1
    fi
    quietly as_user docker import - "$IMAGE" <"$HERE/rootfs.tar"
}

run() {
    if [ $# = 0 ]; then usage; fi
    as_user "$@"
}

# The number may have gone to another process since: it counts only if that one was started with our pidfile.
is_alive() {
    [ -s "$HERE/dockerd.pid" ] &&
        tr '\0' '\n' <"/proc/$(cat "$HERE/dockerd.pid")/cmdline" 2>/dev/null | grep -qxF "$HERE/dockerd.pid"
}

down() {
    if is_alive; then
        kill "$(cat "$HERE/dockerd.pid")"
        for _ in $(seq 60); do
            if ! is_alive; then break; fi
            sleep 0.5
        done
        if is_alive; then fail "process $(cat "$HERE/dockerd.pid") was told to end, and has not yet"; fi
        echo "stopped"
    else
        echo "no daemon of ours is running"
    fi
    if [ -e "$HERE/user-is-ours" ]; then
        sleep 1 # rootlesskit is just about to see it
        quietly userdel "$USER_OF_IT" || fail "the user $USER_OF_IT could not be removed; see $LOG"
        rm "$HERE/user-is-ours"
    fi
}

main "$@"
