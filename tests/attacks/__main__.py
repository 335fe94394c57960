"""`python -m tests.attacks`: all cases, or some, as a table."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.attacks.cases import LATER, OF_THE_PROXY, Case, load
from tests.attacks.harness import WASI, Arena, Caller, Outcome, Verdict, callers
from tests.attacks.worker import Way

_UNCONFINED = "unconfined"
_WAYS = (Way.COLD, Way.WARM, Way.FORKED, Way.SESSION)
_WORDS = {Outcome.SAFE: "safe", Outcome.UNSAFE: "UNSAFE", Outcome.VOID: "VOID"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--user", choices=[*map(str, Caller), _UNCONFINED], help="as whom (default: all that can be)")
    parser.add_argument(
        "--way", choices=[*map(str, _WAYS), str(Way.KEEPER)], help="into which box (default: all but keeper)"
    )
    parser.add_argument(
        "--wall", metavar="NAME", help="behind which wall, such as unshare or docker (default: the best)"
    )
    parser.add_argument("--network", action="store_true", help="in boxes with a network, behind which all is refused")
    parser.add_argument("--case", action="append", metavar="ID", help="only this case (may be given again)")
    parser.add_argument("--verbose", action="store_true", help="print every case, and all evidence of the unsafe ones")
    options = parser.parse_args(arguments)

    cases = [case for case in load() if not options.case or case.id in options.case]
    cases = [case for case in cases if not options.network or case.id not in OF_THE_PROXY]
    if unknown := set(options.case or ()) - {case.id for case in cases}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.user == _UNCONFINED:
        return _controls([case for case in cases if case.control == "leak"], options.verbose)
    chosen = [Caller(options.user)] if options.user else callers()
    ways = [Way(options.way)] if options.way else _WAYS
    return max(_attacks(caller, options, ways, cases) for caller in chosen)


def _attacks(caller: Caller, options: argparse.Namespace, ways: Sequence[Way], cases: Sequence[Case]) -> int:
    wall, verbose = options.wall, options.verbose
    if caller is Caller.ROOT and os.geteuid() != 0:
        sys.exit("only root can play root's part")
    unexpected = 0
    with Arena(caller, wall, network=options.network) as arena:
        for way in ways:
            fitting = [case for case in cases if way in (Way.FORKED, Way.KEEPER) or way in case.ways]
            safe: list[Case] = []
            refused = 0
            for case in fitting:
                if lacking := arena.lacks(case):
                    print(f"{case.id:7} left out: {lacking} is not installed")
                    continue
                verdict = arena.run(case, way)
                if wall == WASI and verdict.outcome is Outcome.VOID:
                    refused += 1
                    continue
                safe += [case] if verdict.safe else []
                unexpected += verdict.safe == (case.id in LATER)
                _show(verdict, "later" if case.id in LATER and not verdict.safe else _WORDS[verdict.outcome], verbose)
            if wall == WASI:
                told = f"{len(safe)} safe of {len(fitting) - refused}; {refused} did nothing, for lack of a shell"
            else:
                told = _counted(wall, safe, fitting)
            print(f"as {caller}, {way}{f', {wall}' if wall else ''}: {told}", flush=True)
    return int(unexpected > 0)


def _counted(wall: str | None, safe: Sequence[Case], fitting: Sequence[Case]) -> str:
    """What asks for the surface of the host's kernel is counted apart where the kernel is another."""
    if wall is None or "gvisor" not in wall:
        return f"{len(safe)} safe of {len(fitting)}"
    held, asked = (sum(case.surface for case in each) for each in (safe, fitting))
    own = f"{len(safe) - held} safe of {len(fitting) - asked}"
    return f"{own}; of those about the host's kernel, which is not there: {held} safe of {asked}"


def _controls(cases: Sequence[Case], verbose: bool) -> int:
    if os.geteuid() != 0:
        sys.exit("commands run without a wall only inside the safety cgroup, which needs root")
    leaked = 0
    with Arena(Caller.ROOT) as arena:
        for case in cases:
            verdict = arena.run(case, Way.UNCONFINED)
            leaks = verdict.outcome is Outcome.UNSAFE
            leaked += leaks
            _show(verdict, "leaks" if leaks else "HOLDS" if verdict.safe else "VOID", verbose)
    print(f"without a wall: {leaked} leak of {len(cases)} that must")
    return int(leaked < len(cases))


def _show(verdict: Verdict, word: str, verbose: bool) -> None:
    if verbose or word.isupper():
        print(f"{verdict.case.id:7} {word:7} {verdict.seconds:5.2f} s  {verdict.case.title}", flush=True)
        notes = [f"{verdict.at_return} alive at return"] if verdict.at_return else []
        evidence = verdict.why.splitlines()
        for line in (*notes, *(evidence if verbose else evidence[:1])):
            print(f"        {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
