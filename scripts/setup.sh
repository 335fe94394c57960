#!/bin/sh
# Makes .venv with everything that the project's own targets need, from nothing but Python 3.11 or newer.
#
# Steps: choose an interpreter; as root install missing system packages; make .venv; install the pinned dependencies
# (requirements-dev.lock, with hashes) and the project itself, which compiles the native helper. A stamp
# remembers what was set up, so that a second run returns at once. Where packages come from is pip's configuration
# on the machine, never ours.
#
# RINGFENCE_PYTHON=/path/to/python3 overrides the choice of the interpreter. `scripts/setup.sh tools` does no more than the
# system packages.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 PIP_ROOT_USER_ACTION=ignore

VENV=.venv
STAMP=$VENV/.set-up
LOCK=requirements-dev.lock
HELPER=src/ringfence/_native/ringfence-box

# command, Debian packages, what is lost without it
TOOLS='
cc       gcc,libc6-dev    the helper is compiled by zig from PyPI (a large download); tests that compile C are skipped
curl     curl             tests of curl in a box are skipped
git      git              tests of git in a workspace are skipped
jq       jq               tests of jq in a box are skipped
musl-gcc musl-tools       the helper is linked with the libc of the system, which is larger and starts more slowly
node     nodejs           tests of Node.js in a box are skipped
ps       procps           tests of ps in a box are skipped
setpriv  util-linux       tests that run as another user are skipped
xxd      xxd              tests of attacks that use xxd are skipped
'

main() {
    if set_up_already; then return; fi
    exec 9<scripts/setup.sh
    if has flock; then flock 9; fi # two targets at once: the second one waits and finds the work done
    if set_up_already; then return; fi
    install_tools
    if [ "${1-}" = tools ]; then return; fi
    python=$(choose_python) || fail "no Python 3.11 or newer; install python3 and python3-venv, or set RINGFENCE_PYTHON"
    make_venv "$python"
    install_project
    fingerprint >"$STAMP"
    say "done: $VENV ($("$VENV/bin/python" --version))"
}

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

fingerprint() {
    {
        pwd
        echo "${RINGFENCE_PYTHON-}:${RINGFENCE_BUILD_WITHOUT_HELPER-}"
        cat pyproject.toml "$LOCK" hatch_build.py scripts/setup.sh native/* 2>/dev/null || true
    } | sha256sum
}

set_up_already() {
    [ -x $VENV/bin/python ] && [ -f $STAMP ] || return 1
    [ -x $HELPER ] || [ "${RINGFENCE_BUILD_WITHOUT_HELPER-}" = 1 ] || [ "$(uname)" != Linux ] || return 1
    [ "$(fingerprint)" = "$(cat $STAMP)" ]
}

# --- system packages --------------------------------------------------------------------------------------------------

install_tools() {
    wanted=$(missing_tools | cut -d' ' -f2 | tr ',\n' '  ')
    if is_root && has apt-get; then
        if [ -z "${RINGFENCE_PYTHON-}" ] && ! first_usable_python >/dev/null; then
            wanted="$wanted python3 python3-venv"
        fi
        if [ -n "$wanted" ]; then
            say "installing $wanted"
            # shellcheck disable=SC2086 # a list of words
            apt_install $wanted || say "apt-get failed; going on without"
        fi
    fi
    missing_tools | while read -r tool packages loss; do
        say "left out: $tool, so $loss ($(echo "apt-get install $packages" | tr ',' ' ') as root)"
    done
}

missing_tools() {
    echo "$TOOLS" | while read -r tool packages loss; do
        if [ -n "$tool" ] && ! has "$tool"; then echo "$tool $packages $loss"; fi
    done
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    lock_wait='-o DPkg::Lock::Timeout=300'
    # shellcheck disable=SC2086
    apt-get $lock_wait update -qq >&2 &&
        apt-get $lock_wait install -qq -y --no-install-recommends "$@" >/dev/null
}

# --- the interpreter --------------------------------------------------------------------------------------------------

choose_python() {
    if [ -n "${RINGFENCE_PYTHON-}" ]; then
        is_new_enough "$RINGFENCE_PYTHON" || fail "RINGFENCE_PYTHON=$RINGFENCE_PYTHON is no Python 3.11 or newer"
        echo "$RINGFENCE_PYTHON"
    else
        first_usable_python || candidates | head -n 1 | grep .
    fi
}

# The system's Python first: other users can run it too, which holds for a version manager's below a home seldom.
candidates() {
    for name in /usr/bin/python3 python3.15 python3.14 python3.13 python3.12 python3.11 python3; do
        if path=$(command -v $name) && is_new_enough "$path"; then echo "$path"; fi
    done
}

first_usable_python() {
    candidates | while read -r path; do
        if "$path" -c 'import ensurepip, venv' 2>/dev/null; then echo "$path"; break; fi
    done | grep .
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# --- the virtual environment ------------------------------------------------------------------------------------------

# Remade if it was made by another interpreter or the tree has moved: its scripts hold absolute paths.
make_venv() {
    made_for="$1 $(pwd)"
    if [ "$(cat "$VENV/.made-for" 2>/dev/null)" = "$made_for" ] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    say "making $VENV with $1"
    if "$1" -c 'import ensurepip' 2>/dev/null; then
        "$1" -m venv --clear $VENV
    else
        "$1" -m venv --clear --without-pip $VENV || fail "$1 cannot make a virtual environment; install python3-venv"
        bring_pip "$1" || fail "no pip to be had; install python3-venv (or python3-pip)"
    fi
    echo "$made_for" >"$VENV/.made-for"
}

# A pip of the machine, or else the wheel that uv.lock names by address and hash.
bring_pip() {
    if "$1" -m pip --version >/dev/null 2>&1; then
        "$1" -m pip --python "$VENV/bin/python" install -q pip
    else
        say "no ensurepip and no pip: fetching the pip of uv.lock"
        wheel=$(fetch_pip_wheel "$1") &&
            PYTHONPATH=$wheel "$VENV/bin/python" -m pip install -q --no-index --ignore-installed "$wheel" &&
            rm "$wheel"
    fi
}

fetch_pip_wheel() {
    "$1" - "$VENV" <<'PYTHON'
import hashlib, pathlib, sys, tomllib, urllib.request

packages = tomllib.loads(pathlib.Path("uv.lock").read_text())["package"]
wheel = next(package for package in packages if package["name"] == "pip")["wheels"][0]
data = urllib.request.urlopen(wheel["url"], timeout=60).read()
if "sha256:" + hashlib.sha256(data).hexdigest() != wheel["hash"]:
    sys.exit(f"{wheel['url']} is not the file that uv.lock names")
target = pathlib.Path(sys.argv[1], wheel["url"].rpartition("/")[2])
target.write_bytes(data)
print(target)
PYTHON
}

install_project() {
    say "installing dependencies and building the helper"
    pip="$VENV/bin/python -m pip"
    $pip install -q --require-hashes -r $LOCK
    # The backend is pinned by the lock, hence no isolation; what the build hook asks for besides (zig, when there is no
    # compiler) is then ours to install.
    needs=$("$VENV/bin/python" -c 'from hatchling.build import get_requires_for_build_editable as f; print(*f())')
    # shellcheck disable=SC2086
    if [ -n "$needs" ]; then $pip install -q $needs; fi
    $pip install -q --no-build-isolation --no-deps -e .
}

main "$@"
