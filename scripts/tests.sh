#!/bin/sh
# All tests, as `make test` runs them: lint, the main part, attacks, and what needs Docker or gVisor.
#
# What is fetched and made for the last part comes while the first ones are under way. More tests at once than there are
# processors: most of them wait most of the time. Not many more, since some kill what should be busy by then.
set -eu
cd "$(dirname "$0")/.."

unset PYTHONDONTWRITEBYTECODE # or each of the thousands of processes that tests start would compile the project anew

PYTEST=".venv/bin/python -m pytest -q"
PREPARED=

main() {
    scripts/setup.sh tools # before two of us could want apt-get at once
    trap end_engine EXIT
    scripts/docker-tests.sh prepare >/dev/null 2>&1 & # what fails is tried again, and told, where it is needed
    PREPARED=$!
    timed set-up scripts/setup.sh
    .venv/bin/python -m pytest -q --collect-only >/dev/null 2>&1 & # tests are compiled once, not by each worker
    compiled=$!
    timed lint make --no-print-directory lint
    wait $compiled || true
    await_engine # its mounts would count as left behind by whichever test runs meanwhile
    timed main $PYTEST -n 3 --dist worksteal --ignore tests/attacks
    # Root's warm boxes and the user's cold ones are left out for time: tests/attacks/README.md.
    timed attacks $PYTEST -n 4 tests/attacks -k "not (root and warm) and not (user and cold)"
    timed docker scripts/docker-tests.sh
}

timed() {
    part=$1
    shift
    started=$(date +%s)
    "$@"
    echo "$part: $(($(date +%s) - started)) s"
}

await_engine() {
    if [ -n "$PREPARED" ]; then wait "$PREPARED" || true; fi
    PREPARED=
}

end_engine() {
    await_engine
    scripts/docker-tests.sh down >/dev/null
}

main
