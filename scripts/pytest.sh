#!/bin/sh
# pytest, with its options; what fails among others is tried once more, alone.
#
# Tests run several at once, on a machine that may have two processors and other work. What passes alone does not fail the
# run, but is named at its end: it is a fault of the test, or one of ours that only load shows. More than a few of them, or
# one that fails again, fail the run.
set -u
cd "$(dirname "$0")/.."

FEW=6

KEPT=$(mktemp -d)
trap 'rm -rf "$KEPT"' EXIT
FAILED=$KEPT/v/cache/lastfailed

names() { .venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$FAILED"; }

.venv/bin/python -m pytest -q -o cache_dir="$KEPT" "$@"
code=$?
if [ $code != 1 ] || [ ! -s "$FAILED" ]; then exit $code; fi
first=$(names)
if [ "$(echo "$first" | wc -l)" -gt $FEW ]; then exit $code; fi
echo "once more, alone:"
.venv/bin/python -m pytest -q -o cache_dir="$KEPT" "$@" -n 0 --last-failed --last-failed-no-failures none || exit $code
printf 'FAILED AMONG OTHERS, PASSED ALONE (to be mended):\n%s\n' "$first"
