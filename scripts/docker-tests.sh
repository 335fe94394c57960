#!/bin/sh
# The tests that need what a machine seldom has: a Docker engine, the sandbox image in it, and gVisor.
#
#   scripts/docker-tests.sh prepare           brings what takes long and needs no .venv, for a later run
#   scripts/docker-tests.sh [PYTEST OPTION]  prepares what is not there yet, runs the tests, ends the engine
#   scripts/docker-tests.sh down             ends the engine
#
# The engine is the one that DOCKER_HOST names, else, as root, one of our own. An ordinary user without DOCKER_HOST leaves
# these tests out, and is told so; so does whoever sets RINGFENCE_WITHOUT_DOCKER=1. Root on a machine where no engine starts has
# a failed check, not a passed one. gVisor is the one that RINGFENCE_RUNSC_PATH names, else that of Debian's backports.
# Where that, or the image, cannot be had, their tests are left out, and the reason is said.
set -eu
cd "$(dirname "$0")/.."

DIRECTORY=$PWD/.docker-engine
IMAGE_LOG=$DIRECTORY/image.log

main() {
    case ${1-} in
    prepare) prepare ;;
    down) if engine_is_ours; then scripts/docker-engine.sh down "$DIRECTORY"; fi ;;
    *) test_all "$@" ;;
    esac
}

left_out() { echo "left out: $1"; }

engine_is_ours() { [ -z "${DOCKER_HOST-}" ] && [ -z "${RINGFENCE_WITHOUT_DOCKER-}" ] && [ "$(id -u)" = 0 ]; }

# gVisor first: the engine is told of it when it starts.
prepare() {
    if ! engine_is_ours; then return; fi
    bring_gvisor >/dev/null
    scripts/docker-engine.sh up "$DIRECTORY" >/dev/null
}

bring_gvisor() {
    if [ -n "${RINGFENCE_RUNSC_PATH-}" ]; then return; fi
    if setting=$(scripts/gvisor.sh "$DIRECTORY/gvisor" 2>&1); then
        export "${setting?}"
    else
        left_out "tests of gVisor: $setting"
    fi
}

test_all() {
    if [ -n "${RINGFENCE_WITHOUT_DOCKER-}" ]; then
        left_out "tests of Docker, its images and gVisor, as RINGFENCE_WITHOUT_DOCKER says"
        return
    fi
    if [ -z "${DOCKER_HOST-}" ]; then
        if [ "$(id -u)" != 0 ]; then
            left_out "tests of Docker, its images and gVisor, since only root can start an engine (or set DOCKER_HOST)"
            return
        fi
        bring_gvisor
        if ! environment=$(scripts/docker-engine.sh up "$DIRECTORY"); then
            echo "no Docker engine could be started for its tests; RINGFENCE_WITHOUT_DOCKER=1 leaves them out" >&2
            exit 1
        fi
        trap 'scripts/docker-engine.sh down "$DIRECTORY"' EXIT
        for setting in $environment; do export "${setting?}"; done
        build_image
    fi
    scripts/pytest.sh -n 4 --dist worksteal "$@" \
        tests/contract/test_boxes.py tests/contract/test_box_files.py tests/integration/test_docker_*.py tests/integration/test_gvisor.py \
        tests/integration/test_image.py tests/integration/test_deployment.py -k "docker or gvisor or image or deployment"
}

# On the image of the other tests, which has most of what is needed, and without the large wheels.
build_image() {
    .venv/bin/ringfence image build --network host --no-data --base "$RINGFENCE_DOCKER_IMAGE" \
        --arg "PACKAGES=bash ca-certificates git nodejs python3-pip python3-venv" >"$IMAGE_LOG" 2>&1 ||
        left_out "tests of the sandbox image, which could not be built: $(tail -n 1 "$IMAGE_LOG")"
}

main "$@"
