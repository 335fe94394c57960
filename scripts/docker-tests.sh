#!/bin/sh
# The tests of boxes in containers, with a real engine: the one that DOCKER_HOST names, else, as root, one of our own that is
# started for them and ended afterwards. Where there is neither, says so.
set -eu
cd "$(dirname "$0")/.."

DIRECTORY=$PWD/.docker-engine

if [ -z "${DOCKER_HOST-}" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "left out: tests of boxes in Docker, since only root can start an engine (or set DOCKER_HOST)"
        exit 0
    fi
    if ! environment=$(scripts/docker-engine.sh up "$DIRECTORY"); then
        echo "left out: tests of boxes in Docker, since no engine could be started here"
        exit 0
    fi
    trap 'scripts/docker-engine.sh down "$DIRECTORY"' EXIT
    for setting in $environment; do export "${setting?}"; done
fi
.venv/bin/python -m pytest -q -n 2 "$@" tests/contract/test_boxes.py tests/integration -k "docker and not image" -p no:cacheprovider
