#!/bin/sh
# All tests, as `make test` runs them: lint, the main part, attacks, what needs Docker or gVisor, and, run by root, the same
# as an ordinary user from a clone of its own. `scripts/tests.sh quick` is lint and the most telling ones, in three minutes.
#
# RINGFENCE_WITHOUT_DOCKER=1 and RINGFENCE_WITHOUT_USER=1 leave those parts out. What is left out is said, at the end again.
#
# What is fetched and made for the last part comes while the first ones are under way. More tests at once than there are
# processors: most of them wait most of the time. Not many more, since some kill what should be busy by then.
set -eu
cd "$(dirname "$0")/.."

unset PYTHONDONTWRITEBYTECODE # or each of the thousands of processes that tests start would compile the project anew

PYTEST=scripts/pytest.sh
PREPARED=
USER_PREPARED=
USER_PLACE=
LEFT_OUT=
FAILED=

# Every module that touches the machine has its claims here, each wall is built, and one case of each kind is run.
QUICK="tests/architecture tests/docs tests/contract tests/unit/engines tests/unit/limits tests/unit/confinement
    tests/unit/manager tests/unit/policy tests/unit/cli tests/integration/test_must_work.py tests/integration/test_protected.py
    tests/integration/test_lifecycle.py tests/integration/test_between_calls.py tests/integration/test_carry.py"

main() {
    case ${1-} in
    quick) quick ;;
    "") all ;;
    *) fail "quick, or nothing" ;;
    esac
}

quick() {
    scripts/setup.sh
    timed lint make --no-print-directory lint
    # shellcheck disable=SC2086 # a list of words
    timed tests $PYTEST -n 3 --dist worksteal $(there $QUICK)
    judge
    echo "left out: whatever else \`make test\` runs: attacks, sessions, shadows, the journal, Docker, gVisor, the other user"
}

# A directory that has moved is no reason to fail late; one of them at least there must be.
there() {
    for each in "$@"; do if [ -e "$each" ]; then echo "$each"; fi; done
}

all() {
    scripts/setup.sh tools # before two of us could want apt-get at once
    trap end_all EXIT
    scripts/docker-tests.sh prepare >/dev/null 2>&1 & # what fails is tried again, and told, where it is needed
    PREPARED=$!
    prepare_user
    scripts/setup.sh
    .venv/bin/python -m pytest -q --collect-only >/dev/null 2>&1 & # tests are compiled once, not by each worker
    compiled=$!
    timed lint make --no-print-directory lint
    wait $compiled || true
    await_engine # its mounts would count as left behind by whichever test runs meanwhile
    timed main $PYTEST -n 3 --dist worksteal --ignore tests/attacks
    # Root's warm boxes and the user's cold ones are left out for time: tests/attacks/README.md.
    timed attacks $PYTEST -n 4 tests/attacks -k "not (root and warm) and not (user and cold)"
    timed docker scripts/docker-tests.sh
    timed user test_as_user
    if [ -n "$LEFT_OUT" ]; then printf 'left out:%s\n' "$LEFT_OUT"; fi
    judge
}

# --- the ordinary user ------------------------------------------------------------------------------------------------

prepare_user() {
    if [ "$(id -u)" != 0 ]; then
        leave_out "the tests as another user, who only root can become; you are an ordinary one yourself"
        return
    fi
    if [ -n "${RINGFENCE_WITHOUT_USER-}" ]; then
        leave_out "the tests as an ordinary user, as RINGFENCE_WITHOUT_USER says"
        return
    fi
    USER_PLACE=$(mktemp -d /tmp/rf-user.XXXXXX) # short: sockets are put there
    scripts/ordinary-user.sh prepare "$USER_PLACE" >"$USER_PLACE.log" 2>&1 &
    USER_PREPARED=$!
}

# With a strict umask all that matters, with the usual one what is quick.
test_as_user() {
    if [ -z "$USER_PLACE" ]; then return; fi
    if ! wait "$USER_PREPARED"; then
        tail -n 20 "$USER_PLACE.log" >&2
        fail "an ordinary user cannot set up a clone"
    fi
    if [ -x .docker-engine/gvisor/runsc ]; then export RINGFENCE_RUNSC_PATH="${RINGFENCE_RUNSC_PATH-$PWD/.docker-engine/gvisor/runsc}"; fi
    code=0
    scripts/ordinary-user.sh test "$USER_PLACE" || code=$?
    UMASK=022 scripts/ordinary-user.sh test "$USER_PLACE" tests/contract tests/integration/test_must_work.py tests/integration/test_protected.py ||
        code=$?
    leave_out "as the user: tests of pure judgement, pages and documents of the server, attacks (root's run plays its part), Docker"
    return $code
}

leave_out() { LEFT_OUT="$LEFT_OUT
  $1"; }

fail() {
    echo "tests: $1" >&2
    exit 1
}

timed() {
    part=$1
    shift
    started=$(date +%s)
    "$@" || FAILED="$FAILED $part"
    echo "$part: $(($(date +%s) - started)) s"
}

# A part that fails does not keep the others from being run: who waits for a quarter of an hour wants to know all of it.
judge() {
    if [ -n "$FAILED" ]; then fail "failed:$FAILED"; fi
}

await_engine() {
    if [ -n "$PREPARED" ]; then wait "$PREPARED" || true; fi
    PREPARED=
}

end_all() {
    if [ -n "$USER_PLACE" ]; then
        wait "$USER_PREPARED" || true
        rm -rf "$USER_PLACE" "$USER_PLACE.log"
    fi
    await_engine
    scripts/docker-tests.sh down >/dev/null
}

main "$@"
