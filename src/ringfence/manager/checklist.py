"""The three checklists of the requirement (B11): before deployment, at run time, periodic.

What can be checked is checked by doing it: a box is opened, looked at from inside and from outside, and made to hit its
limits; something is refused, and looked for where it has to turn up. What can not be checked here says so and why, and
is never taken for a yes. Claims about what people do (reviews, tests of intrusion) stay theirs; they get the figures.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from ringfence.audit.verify import verify
from ringfence.errors import RingfenceError
from ringfence.manager.assemble import policy_in_force
from ringfence.manager.blocking import wait_for
from ringfence.manager.claims import Checklist, ClaimItem, ClaimState
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.image_claims import image_is_built_and_scanned, image_is_up_to_date
from ringfence.manager.options import SandboxOptions
from ringfence.manager.policing import ORGANISATION, PolicyEngine
from ringfence.manager.policy_pages import remarks
from ringfence.manager.pool_notice import read_notices
from ringfence.manager.pooling import SandboxPool
from ringfence.manager.probing import PROBE_SESSION, ProbeSeen, probe
from ringfence.manager.records import EXECUTION, recorded_at, records, violations_of
from ringfence.pool.plan import PoolConfig
from ringfence.values.limits import Limit, show_limit
from ringfence.values.outcome import LimitHit, Refused, TimedOut
from ringfence.values.sizes import show_age

_PERIOD_SECONDS: Final = 30 * 24 * 3600.0
_AUDIT_SECONDS: Final = 120.0


def check_all(policy: str | os.PathLike[str] | None = None) -> tuple[Checklist, ...]:
    """Check everything; never raises for what it finds.

    Args:
        policy: the policy that will be used, besides the one that RINGFENCE_POLICY names.
    """
    environ = dict(os.environ)
    seen: ProbeSeen | str
    try:
        state = state_directory(environ, home_directory(environ))
        seen = wait_for(probe(environ))
    except RingfenceError as fault:
        state, seen = Path(environ.get("RINGFENCE_STATE_DIR", "")), str(fault)
    engine = _policy(policy, environ)
    return (
        Checklist(
            "before deployment",
            (
                wait_for(image_is_built_and_scanned(environ)),
                _on_seen("seccomp is applied", seen, _seccomp),
                _on_seen("nothing runs as root", seen, _never_root),
                _on_seen("the network is closed", seen, _network),
                _on_seen("limits are set", seen, _limits),
                _on_seen("the audit log is on", seen, partial(_audit_on, state)),
                _policy_loaded(engine),
            ),
        ),
        Checklist(
            "at run time",
            (
                wait_for(_pool(state)),
                _on_seen("use stays within the limits", seen, _within),
                _on_seen("there is no unexpected connection", seen, _connections),
                _audit_written(state),
                _on_seen("violations are reported", seen, partial(_reported, state)),
            ),
        ),
        Checklist(
            "periodic",
            (
                _analysis(state),
                wait_for(image_is_up_to_date(environ)),
                _review(engine),
                ClaimItem(
                    "intrusion was tested",
                    ClaimState.UNKNOWN,
                    "that is done by people, or by the attack suite in the source tree",
                    "in a checkout: pytest tests/attacks",
                ),
                _dependencies(),
            ),
        ),
    )


def passes(lists: tuple[Checklist, ...]) -> bool:
    """Whether nothing that could be checked is amiss."""
    return all(item.found is not ClaimState.NO for each in lists for item in each.items)


# --- before deployment ------------------------------------------------------------------------------------------------


def _on_seen(claim: str, seen: ProbeSeen | str, judge: Callable[[ProbeSeen], tuple[ClaimState, str, str]]) -> ClaimItem:
    if isinstance(seen, str):
        return ClaimItem(claim, ClaimState.NO, f"no box could be opened: {seen}", "run `ringfence doctor`")
    found, evidence, hint = judge(seen)
    return ClaimItem(claim, found, evidence, hint if found is not ClaimState.YES else "")


def _seccomp(seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    inside, outside = seen.inside.get("Seccomp"), seen.outside.get("Seccomp")
    evidence = (
        f"wall {seen.wall}; seccomp mode inside {inside or '?'}, seen outside {outside or '?'} (2 is a filter); "
        f"no new privileges: {seen.inside.get('NoNewPrivs', '?')}"
    )
    held = inside == "2" and outside in ("2", None) and seen.inside.get("NoNewPrivs") == "1"
    return ClaimState.YES if held else ClaimState.NO, evidence, "run `ringfence doctor`"


def _never_root(seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    inside, outside = seen.inside.get("Uid", "").split(), seen.outside.get("Uid", "").split()
    capabilities = seen.inside.get("CapEff", "")
    evidence = f"uid inside {_each(inside)}, as the kernel sees it {_each(outside) or '?'}; capabilities "
    evidence += "none" if capabilities.strip("0") == "" else capabilities
    held = bool(inside) and "0" not in (*inside, *outside) and capabilities.strip("0") == ""
    return ClaimState.YES if held else ClaimState.NO, evidence, "run `ringfence doctor`"


def _each(uids: list[str]) -> str:
    """Real, effective, saved and file system uid, which are mostly one."""
    return " ".join(dict.fromkeys(uids))


def _network(seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    own = {True: "a network namespace of its own", False: "the host's network namespace", None: "namespace not visible"}
    evidence = f"{own[seen.own_network]}; interfaces: {', '.join(seen.interfaces) or 'none'}; "
    evidence += f"reached: {', '.join(seen.reached)}" if seen.reached else f"not reached: {', '.join(seen.tried)}"
    closed = not seen.reached and (bool(seen.tried) or set(seen.interfaces) <= {"lo"})
    return (ClaimState.YES if closed else ClaimState.NO), evidence, "run `ringfence doctor`"


def _limits(seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    memory = isinstance(seen.hog.ending, LimitHit) and seen.hog.ending.limit is Limit.MEMORY
    time_up = isinstance(seen.sleeper.ending, TimedOut)
    limits = seen.configured
    figures = {
        Limit.MEMORY: limits.memory_bytes,
        Limit.WALL: limits.wall_seconds,
        Limit.CPU: limits.cpu_seconds,
        Limit.PROCESSES: limits.processes,
    }
    configured = ", ".join(f"{limit} {show_limit(limit, value)}" for limit, value in figures.items())
    evidence = (
        f"held by {seen.limits_by}; taking memory without end: {seen.hog.ending}; sleeping too long: "
        f"{seen.sleeper.ending}; configured: {configured}"
    )
    return ClaimState.YES if memory and time_up else ClaimState.NO, evidence, "run `ringfence doctor`"


def _audit_on(state: Path, seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    mine = next((record for record in records(state, having=seen.run_id.encode()) if "ending" in record), None)
    if mine is None:
        return ClaimState.NO, f"the probe's run {seen.run_id} is not in {state}", "set RINGFENCE_STATE_DIR"
    return ClaimState.YES, f"the probe's run {seen.run_id} is in {state}, with its decision and its end", ""


def _policy(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> PolicyEngine | str | None:
    """What is in force; why it is not, as text; None if none is named."""
    try:
        return policy_in_force(SandboxOptions(policy=path), environ)
    except RingfenceError as fault:
        return str(fault)


def _policy_loaded(engine: PolicyEngine | str | None) -> ClaimItem:
    claim = "a policy is configured"
    if engine is None:
        return ClaimItem(
            claim, ClaimState.NO, "none is named; only the grant holds", f"set {ORGANISATION}, or give --policy FILE"
        )
    if isinstance(engine, str):
        return ClaimItem(claim, ClaimState.NO, engine, "correct it; `ringfence policy check FILE`")
    return ClaimItem(claim, ClaimState.YES, f"{', '.join(engine.sources)}: loaded, and all its examples hold")


# --- at run time ------------------------------------------------------------------------------------------------------


async def _pool(state: Path) -> ClaimItem:
    claim = "the pool is healthy"
    ailing = [
        f"pid {notice['pid']}: {counts.get('last_fault', '')}"
        for notice in read_notices(state)
        for counts in notice["pools"].values()
        if counts.get("failures_in_a_row") or counts.get("unclosed")
    ]
    if ailing:
        return ClaimItem(claim, ClaimState.NO, "; ".join(ailing), "see `ringfence pool`")
    try:
        began = time.monotonic()
        async with SandboxPool(size=PoolConfig(min_instances=1, max_instances=2)) as pool:
            ready_seconds = time.monotonic() - began
            sandbox = await pool.take()
            stands = sandbox.is_active
            pool.discard(sandbox)
            states = pool.state().values()
        faults = [counts.last_fault for counts in states if counts.failures or counts.unclosed]
    except RingfenceError as fault:
        return ClaimItem(claim, ClaimState.NO, str(fault), fault.hint)
    evidence = f"one was made in {ready_seconds:.2f} s, a box taken and ended; pools of other processes: none ailing"
    good = stands and not faults
    return ClaimItem(
        claim, ClaimState.YES if good else ClaimState.NO, evidence if good else "; ".join(faults) or "the box was lost"
    )


def _within(seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    return (
        (ClaimState.YES if seen.within else ClaimState.NO),
        f"the probe used {seen.usage}",
        "see why limits do not hold",
    )


def _connections(seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    if seen.reached or seen.listening:
        evidence = "; ".join((*(f"reached {each}" for each in seen.reached), *(f"open {e}" for e in seen.listening)))
        return ClaimState.NO, evidence, "find out who opened it"
    evidence = f"from inside nothing is reached ({', '.join(seen.tried)}); outside, no process of ours listens"
    return ClaimState.YES, evidence, ""


def _audit_written(state: Path) -> ClaimItem:
    claim = "the audit log is written as it should be"
    last = max(map(recorded_at, records(state)), default=0.0)
    if not last:
        return ClaimItem(
            claim, ClaimState.NO, f"there is no record in {state}", "run something; see RINGFENCE_STATE_DIR"
        )
    age = f"last written {show_age(time.time() - last)}"
    try:
        report = verify(state)
    except (RingfenceError, OSError, ValueError) as fault:
        return ClaimItem(claim, ClaimState.NO, f"{age}; it cannot be verified: {fault}", "ringfence audit verify")
    return ClaimItem(claim, ClaimState.YES if report.ok else ClaimState.NO, f"{age}; {report}", *_see_verify(report.ok))


def _see_verify(whole: bool) -> tuple[str, ...]:
    return () if whole else ("ringfence audit verify",)


def _reported(state: Path, seen: ProbeSeen) -> tuple[ClaimState, str, str]:
    refused = isinstance(seen.refused.ending, Refused) and bool(seen.refused.violations)
    told = any(event.result is not None and event.result.violations for event in seen.told)
    written = any(
        entry.run_id == seen.refused.run_id
        for entry in violations_of(records(state, having=seen.refused.run_id.encode() or b"\0"))
    )
    where = {"the result": refused, "the store": bool(seen.stored), "observers": told, "the journal": written}
    missing = [name for name, there in where.items() if not there]
    if missing:
        return ClaimState.NO, f"something that was refused is missing in {', '.join(missing)}", "please report this"
    return ClaimState.YES, f"something that was refused is in {', '.join(where)}", ""


# --- periodic ---------------------------------------------------------------------------------------------------------


def _analysis(state: Path) -> ClaimItem:
    since = time.time() - _PERIOD_SECONDS
    runs = [record for record in records(state, having=EXECUTION) if recorded_at(record) >= since]
    real = [record for record in runs if record.get("session_id") != PROBE_SESSION]
    refused = sum(record.get("result") == "refused" for record in real)
    faults = sum(record.get("result") in ("fault", "interrupted") for record in real)
    violations = sum(1 for _ in violations_of(real))
    figures = (
        f"in 30 days: {len(real)} runs, of them {refused} refused and {faults} without a result; "
        f"{violations} violations"
    )
    own = len(runs) - len(real)
    beside = f" ({own} runs of this checklist are not counted)" if own else ""
    return ClaimItem(
        "the audit log is analysed",
        ClaimState.UNKNOWN,
        f"{figures}{beside}; a person has to look",
        "ringfence violations, ringfence audit stats",
    )


def _review(engine: PolicyEngine | str | None) -> ClaimItem:
    claim = "the policy's rules are reviewed"
    if engine is None or isinstance(engine, str):
        return ClaimItem(
            claim, ClaimState.UNKNOWN, "there is no policy to review", f"set {ORGANISATION}, or give --policy FILE"
        )
    layers = engine.policies
    found = [remark for number, layer in enumerate(layers) for remark in remarks(layer, layers[:number])]
    if found:
        return ClaimItem(
            claim, ClaimState.NO, f"{len(found)} remarks; the first: {found[0]}", "ringfence policy check FILE says all"
        )
    return ClaimItem(
        claim, ClaimState.YES, "no rule is without effect or overruled; whether they are wise is for people to say"
    )


def _dependencies() -> ClaimItem:
    claim = "dependencies are free of known faults"
    tool = shutil.which("pip-audit") or shutil.which("pip-audit", path=os.path.dirname(sys.executable))
    if tool is None:
        return ClaimItem(claim, ClaimState.UNKNOWN, "pip-audit is not installed", "pip install pip-audit")
    try:
        done = subprocess.run(
            [tool, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            timeout=_AUDIT_SECONDS,
            check=False,
        )
        packages = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as fault:
        return ClaimItem(
            claim, ClaimState.UNKNOWN, f"pip-audit gave no answer ({type(fault).__name__})", "run it where it can"
        )
    bad = [str(each.get("name")) for each in packages if each.get("vulns")]
    if bad:
        return ClaimItem(claim, ClaimState.NO, f"pip-audit names {', '.join(bad)}", "pip-audit --fix")
    return ClaimItem(claim, ClaimState.YES, f"pip-audit knows nothing against {len(packages)} packages")
