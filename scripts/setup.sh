#!/bin/sh
# Makes .venv with everything that the project's own targets need, from nothing but Python 3.11 or newer.
#
# Steps: choose an interpreter; as root install missing system packages; make .venv; install the pinned dependencies
# (requirements-dev.lock, with hashes) and the project itself, which compiles the native helper; compile its modules. A stamp
# remembers what was set up, so that a second run returns at once. Where packages come from is pip's configuration
# on the machine, never ours.
#
# RINGFENCE_PYTHON=/path/to/python3 overrides the choice of the interpreter. `scripts/setup.sh run` installs only what it
# takes to run (requirements-run.lock), and no system packages; a later full set-up adds the rest. `scripts/setup.sh dist`
# makes .venv-dist with what builds and checks a release (requirements-dist.lock). `scripts/setup.sh tools` does no more
# than the system packages.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 PIP_ROOT_USER_ACTION=ignore

VENV=.venv
LEVEL=dev
HELPER=src/ringfence/_native/ringfence-box

# command, Debian packages, what is lost without it
TOOLS='
cc       gcc,libc6-dev    the helper is compiled by zig from PyPI (a large download); tests that compile C are skipped
chromium-headless-shell chromium-headless-shell tests of the browser are skipped
clang    clang,lld,wasi-libc,libclang-rt-14-dev-wasm32 WASI boxes are built without their small tools (ls, grep, jq ...), and tests of these are skipped
curl     curl             tests of curl in a box are skipped
git      git              tests of git in a workspace are skipped
ip       iproute2         tests of real clients in a network made for them are skipped
jq       jq               tests of jq in a box are skipped
musl-gcc musl-tools       the helper is linked with the libc of the system, which is larger and starts more slowly
node     nodejs           tests of Node.js in a box are skipped
ps       procps           tests of ps in a box are skipped
setpriv  util-linux       tests that run as another user are skipped
wget     wget             tests of wget in a box are skipped
xxd      xxd              tests of attacks that use xxd are skipped
'

main() {
    case ${1-} in
    run) LEVEL=run ;;
    dist) LEVEL=dist VENV=.venv-dist ;;
    esac
    if set_up_already; then
        compile_project
        return
    fi
    exec 9<scripts/setup.sh
    if has flock; then flock 9; fi # two targets at once: the second one waits and finds the work done
    if set_up_already; then
        compile_project
        return
    fi
    if [ $LEVEL = dev ]; then install_tools; else install_python; fi
    if [ "${1-}" = tools ]; then return; fi
    python=$(choose_python) || fail "no Python 3.11 or newer; install python3 and python3-venv, or set RINGFENCE_PYTHON"
    make_venv "$python"
    say "installing $(lock $LEVEL)"
    "$VENV/bin/python" -m pip install -q --require-hashes -r "$(lock $LEVEL)"
    if [ $LEVEL != dist ]; then
        install_project
        compile_project
    fi
    if [ $LEVEL = dev ]; then prepare_wasi; fi
    fingerprint $LEVEL >"$(stamp $LEVEL)"
    say "done: $VENV ($("$VENV/bin/python" --version))"
}

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }

lock() { echo "requirements-$1.lock"; }
stamp() { echo "$VENV/.set-up-$1"; }

fingerprint() {
    {
        pwd
        echo "${RINGFENCE_PYTHON-}"
        cat pyproject.toml "$(lock "$1")" hatch_build.py scripts/setup.sh native/* native/front/* native/userland/* 2>/dev/null || true
    } | sha256sum
}

set_up_already() {
    [ -x $VENV/bin/python ] || return 1
    if [ $LEVEL = dist ]; then
        is_current dist
        return
    fi
    [ -x $HELPER ] || [ "$(uname)" != Linux ] || return 1
    is_current dev || { [ $LEVEL = run ] && is_current run; }
}

is_current() { [ "$(fingerprint "$1")" = "$(cat "$(stamp "$1")" 2>/dev/null)" ]; }

# --- system packages --------------------------------------------------------------------------------------------------

install_tools() {
    wanted=$(missing_tools | cut -d' ' -f2 | tr ',\n' '  ')
    if is_root && has apt-get; then
        if lacks_python; then wanted="$wanted python3 python3-venv"; fi
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

install_python() {
    if lacks_python && is_root && has apt-get; then
        say "installing python3 python3-venv"
        apt_install python3 python3-venv || say "apt-get failed; going on without"
    fi
}

lacks_python() { [ -z "${RINGFENCE_PYTHON-}" ] && ! first_usable_python >/dev/null; }

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
        bring_pip "$1" || fail "no pip is available; install python3-venv (or python3-pip)"
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
    say "building the helper"
    pip="$VENV/bin/python -m pip"
    # The backend is pinned by the lock, hence no isolation; what the build hook asks for besides (zig, when there is no
    # compiler) is then ours to install: 300 MB that nobody needs afterwards.
    needs=$("$VENV/bin/python" -c 'from hatchling.build import get_requires_for_build_editable as f; print(*f())')
    # shellcheck disable=SC2086
    if [ -n "$needs" ]; then $pip install -q --target $VENV/for-the-build $needs; fi
    PYTHONPATH=$PWD/$VENV/for-the-build $pip install -q --no-build-isolation --no-deps -e .
    rm -rf $VENV/for-the-build
}

# CPython for WASI, built and compiled once for all tests; it takes a minute.
prepare_wasi() {
    say "preparing WASI for tests"
    RINGFENCE_KEEPER=off RINGFENCE_WASI_DIR="$PWD/$VENV/wasi" "$VENV/bin/ringfence-python" bundle prepare >&2 ||
        say "left out: WASI, so its tests are skipped"
}

# Where PYTHONDONTWRITEBYTECODE is set, or somebody who may not write here runs us, every start would compile everything.
# pip has compiled what it installed; the project itself lies in src/. What has not changed is passed over.
compile_project() {
    "$VENV/bin/python" -m compileall -q src/ringfence >/dev/null 2>&1 || true # who may not write here goes without
}

main "$@"
