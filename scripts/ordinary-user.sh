#!/bin/sh
# The tests as an ordinary person has them, run by root: a uid that nobody has, a clone of its own with a .venv of its own, in
# a place that it owns, with nothing of root's: an empty home, a short PATH, no groups, no terminal, no locale, a strict umask,
# and the 1,024 open files of every login.
#
#   scripts/ordinary-user.sh prepare DIRECTORY              makes the clone, what is not committed included, and its .venv
#   scripts/ordinary-user.sh test DIRECTORY [PYTEST ...]    runs tests there; without options, all that matter to a user
#   scripts/ordinary-user.sh run DIRECTORY COMMAND ...      runs a command there, in the same surroundings
#   scripts/ordinary-user.sh remove DIRECTORY
#
# RINGFENCE_RUNSC_PATH, if it is set, is copied there. UMASK=022 gives the usual umask instead of 077.
set -eu
cd "$(dirname "$0")/.."

OPEN_FILES=1024

main() {
    if [ $# -lt 2 ]; then usage; fi
    if [ "$(id -u)" != 0 ]; then fail "only root can become somebody else"; fi
    command=$1
    mkdir -p "$2"
    HERE=$(cd "$2" && pwd)
    CLONE=$HERE/ringfence
    shift 2
    case $command in
    prepare) prepare ;;
    test) test_there "$@" ;;
    run) as_user "$@" ;;
    remove) rm -rf "$HERE" ;;
    *) usage ;;
    esac
}

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "ordinary-user: $1" >&2
    exit 1
}

prepare() {
    umask 077
    rm -rf "$HERE"
    mkdir -p "$HERE/home" "$HERE/tmp"
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git clone -q --no-hardlinks . "$CLONE"
        git ls-files -coz --exclude-standard
    else
        mkdir "$CLONE" # an archive of the sources
        find . -path ./.venv -prune -o -name __pycache__ -prune -o -type f -print0
    fi | tar --null --ignore-failed-read --files-from - -cf - 2>/dev/null | (umask 077 && tar -xf - --no-same-permissions -C "$CLONE")
    chown -R "$(unused_uid):$(unused_uid)" "$HERE"
    as_user scripts/setup.sh
}

# Above what Debian gives to people and services, below what systemd gives to dynamic users. The tests' own are below it.
unused_uid() {
    uid=61990
    while getent passwd "$uid" >/dev/null; do uid=$((uid + 1)); done
    echo "$uid"
}

test_there() {
    give_gvisor
    if [ $# = 0 ]; then set -- $(what_matters); fi
    # Short: a socket's path has at most 107 bytes, and tests put sockets below their own directories.
    as_user scripts/pytest.sh -n 3 --dist worksteal --basetemp "$HERE/t" "$@"
}

# Judgement is the same for everybody: it looks at values, and at nothing of the machine. So are what only passes values on, and
# the pages and documents of the server, whose boxes are those of other tests.
what_matters() {
    for each in tests/unit/*; do
        case ${each##*/} in
        shell | policy | values | languages | approvals | __pycache__ | __init__.py) ;;
        agents | browser | build | bundles | client | egress | mcp | server | tools) ;;
        *) echo "$each" ;;
        esac
    done
    for each in tests/integration/*; do
        case ${each##*/} in
        __pycache__ | __init__.py | inspection) ;;
        test_console.py | test_mcp_http.py | test_server_faces.py | test_server_hostile.py | test_server_openapi.py) ;;
        test_browser_leaks.py | test_egress_corpus.py | test_world_browser.py) ;;
        test_*) echo "$each" ;;
        esac
    done
    echo tests/contract
}

give_gvisor() {
    if [ -x "${RINGFENCE_RUNSC_PATH-}" ] && [ ! -x "$HERE/runsc" ]; then
        install -m 755 "$RINGFENCE_RUNSC_PATH" "$HERE/runsc"
    fi
}

# Where packages come from is pip's configuration on the machine, which may be in variables.
as_user() {
    kept=$(env | sed -n '/^\(PIP_[A-Z_]*\|[a-z]*_proxy\|[A-Z]*_PROXY\|SSL_CERT_[A-Z]*\)=[^ ]*$/p')
    if [ -x "$HERE/runsc" ]; then kept="$kept RINGFENCE_RUNSC_PATH=$HERE/runsc"; fi
    uid=$(stat -c %u "$HERE")
    # shellcheck disable=SC2086,SC2016 # a list of words; what the inner shell expands
    setsid --wait setpriv --reuid "$uid" --regid "$uid" --clear-groups --reset-env \
        env -i $kept HOME="$HERE/home" PATH=/usr/local/bin:/usr/bin:/bin TMPDIR="$HERE/tmp" \
        sh -c 'umask "$1" && ulimit -n "$2" && cd "$3" && shift 3 && exec "$@"' \
        sh "${UMASK-077}" "$OPEN_FILES" "$CLONE" "$@" </dev/null
}

main "$@"
