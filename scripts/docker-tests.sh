#!/bin/sh
# The tests of boxes in containers, with a real engine: the one that DOCKER_HOST names, else, as root, one of our own that is
# started for them and ended afterwards. An ordinary user without DOCKER_HOST leaves them out, and is told so; so does whoever sets
# RINGFENCE_WITHOUT_DOCKER=1. Root on a machine where no engine starts has a failed check, not a passed one.
set -eu
cd "$(dirname "$0")/.."

DIRECTORY=$PWD/.docker-engine

if [ -z "${DOCKER_HOST-}" ]; then
    if [ -n "${RINGFENCE_WITHOUT_DOCKER-}" ]; then
        echo "left out: tests of boxes in Docker, as RINGFENCE_WITHOUT_DOCKER says"
        exit 0
    fi
    if [ "$(id -u)" != 0 ]; then
        echo "left out: tests of boxes in Docker, since only root can start an engine (or set DOCKER_HOST)"
        exit 0
    fi
    if ! environment=$(scripts/docker-engine.sh up "$DIRECTORY"); then
        echo "no Docker engine could be started for its tests; RINGFENCE_WITHOUT_DOCKER=1 leaves them out" >&2
        exit 1
    fi
    trap 'scripts/docker-engine.sh down "$DIRECTORY"' EXIT
    for setting in $environment; do export "${setting?}"; done
fi
.venv/bin/python -m pytest -q -n 2 "$@" tests/contract/test_boxes.py tests/integration -k "docker and not image" -p no:cacheprovider
