"""Looks at this machine and says which walls it can build, what each guarantees, and how to get what is missing."""

import importlib.util
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Final

from ringfence.confinement.choose import confiners, facts
from ringfence.dataclass import dataclass
from ringfence.engines.docker.facts import docker_facts
from ringfence.engines.native.facts import helper_fact
from ringfence.engines.wasi.facts import GIVEN, LACKING, wasi_fact
from ringfence.errors import RingfenceError
from ringfence.limits.choose import describe as describe_limits
from ringfence.manager.blocking import wait_for
from ringfence.manager.configuring import home_directory, load_config, state_directory
from ringfence.manager.nesting import HINT, outer_sandbox
from ringfence.manager.options import REQUIRED
from ringfence.manager.parent_proxies import parents_of
from ringfence.manager.probing import try_command
from ringfence.policy.settings import read_settings
from ringfence.values.guarantee import Guarantee

_COVERED_PROC: Final = (
    "parts of /proc are covered, as in a container, and the kernel then lets nobody mount a new one: start the "
    "container with an uncovered /proc (Docker: --security-opt systempaths=unconfined)"
)
_NOTHING_MORE: Final = "look at the limits of the configuration; if they are not why, please report what this says"


@dataclass(frozen=True, slots=True)
class WallReport:
    name: str
    usable: bool
    default: bool
    """Whether this is the wall that a plain command gets."""
    guarantees: frozenset[Guarantee]
    missing: str
    hint: str


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    hint: str = ""
    is_needed: bool = True
    """Whether a plain command needs it."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    walls: tuple[WallReport, ...]
    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """Whether a plain command can be run here."""
        return any(wall.default for wall in self.walls) and all(
            check.ok or not check.is_needed for check in self.checks
        )


def examine(environ: Mapping[str, str] | None = None) -> DoctorReport:
    """Probe everything; never raises for what it finds."""
    environ = os.environ if environ is None else environ
    checks = [
        Check(
            "platform", platform.system() == "Linux", f"{platform.system()} {platform.release()} {platform.machine()}"
        ),
        Check("runs as", True, "root: boxes get a uid of their own" if os.geteuid() == 0 else f"uid {os.geteuid()}"),
    ]
    checks += [Check(*fact) for fact in (*facts(), helper_fact())]
    checks.append(Check("limits held by", True, describe_limits()))
    try:
        home = home_directory(environ)
        config = load_config(environ, home)
        settings = read_settings(environ)
        checks.append(Check("configuration", not config.warnings, config.source, "; ".join(config.warnings)))
        if not config.enabled:
            off = f"switched off by {config.switched_off_by}: nothing runs"
            checks.append(Check("sandbox", False, off, "switch it on again"))
        checks.append(_state_check(str(state_directory(environ, home))))
        native = _walls(settings.bwrap_path, settings.adapter)
        walls = (*native, *_docker_walls(environ), _wasi_wall(environ, home, native))
        if any(wall.default for wall in walls):
            checks.append(_command_check(environ))
            checks.append(_network_check(environ))
        if outer := outer_sandbox(environ):
            checks.append(_nesting_check(outer, checks, walls))
    except RingfenceError as fault:
        checks.append(Check("configuration", False, fault.message, fault.hint))
        walls = ()
    return DoctorReport(walls, tuple(checks))


def _walls(bwrap_path: str | None, adapter: str | None) -> tuple[WallReport, ...]:
    reports: list[WallReport] = []
    wanted = REQUIRED - {Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED}
    chosen = False
    for confiner in confiners(bwrap_path=bwrap_path):
        probe = confiner.probe()
        given = (
            probe.guarantees | {Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED} if probe.usable else frozenset()
        )
        fits = probe.usable and wanted <= probe.guarantees and adapter in (None, "auto", confiner.name)
        reports.append(WallReport(confiner.name, probe.usable, fits and not chosen, given, probe.missing, probe.hint))
        chosen = chosen or fits
    return tuple(reports)


def _docker_walls(environ: Mapping[str, str]) -> tuple[WallReport, ...]:
    """Containers are used only where somebody asks for them."""
    return tuple(
        WallReport(fact.name, not fact.missing, False, fact.guarantees, fact.missing, fact.hint)
        for fact in docker_facts(environ)
    )


def _wasi_wall(environ: Mapping[str, str], home: str, native: tuple[WallReport, ...]) -> WallReport:
    """Modules run in a box of the wall that a plain command gets; used only where somebody asks for them."""
    around = next((wall for wall in native if wall.default), None)
    if around is None:
        return WallReport("wasi", False, False, frozenset(), "there is no wall for the runner", "see the walls above")
    fact = wasi_fact(environ, home)
    given = frozenset() if fact.missing else (around.guarantees | GIVEN) - LACKING
    return WallReport(f"wasi in {around.name}", not fact.missing, False, given, fact.missing, fact.hint)


def _command_check(environ: Mapping[str, str]) -> Check:
    """Whether a plain command runs, by running one: a probe looks at parts, and all of them may work but the whole."""
    name = "a plain command"
    try:
        done = wait_for(try_command(environ))
    except RingfenceError as fault:
        hint = _COVERED_PROC if "proc: Operation not permitted" in fault.message else fault.hint
        return Check(name, False, fault.message, _NOTHING_MORE if "ringfence doctor" in hint else hint)
    wall = done.wall.name if done.wall is not None else "no wall"
    if not done.ok:
        return Check(name, False, f"behind {wall}: {done.ending}", "see what it says: ringfence run true")
    return Check(name, True, f"ran behind {wall}")


def _nesting_check(outer: str, checks: Sequence[Check], walls: Sequence[WallReport]) -> Check:
    """Inside another sandbox: which, and whether a wall can still be built there."""
    runs = any(wall.default for wall in walls) and all(check.ok for check in checks if check.is_needed)
    found = f"inside {outer}: " + ("our wall can be built in it" if runs else "no wall of ours can be built in it")
    return Check("another sandbox", runs, found, "" if runs else HINT)


def _network_check(environ: Mapping[str, str]) -> Check:
    """Whether a box can be given a network, by giving one: the proxy is started behind its own wall for it."""
    name = "named hosts"
    try:
        done = wait_for(try_command(environ, "host.invalid"))
    except RingfenceError as fault:
        hint = fault.hint if "ringfence doctor" not in fault.hint else _NOTHING_MORE
        return Check(name, False, fault.message, hint, is_needed=False)
    wall = done.wall.name if done.wall is not None else "no wall"
    if not done.ok:
        return Check(name, False, f"behind {wall}: {done.ending}", _NOTHING_MORE, is_needed=False)
    has_ssh = importlib.util.find_spec("asyncssh") is not None
    parents = parents_of(environ)
    by = {each.shown for each in (parents.https, parents.http) if each is not None}
    parts = (
        f"can be reached from behind {wall}",
        "git by SSH, too" if has_ssh else "git by SSH needs ringfence[ssh]",
        f"through {' and '.join(sorted(by))}" if by else "",
    )
    return Check(name, True, "; ".join(filter(None, parts)), is_needed=False)


def _state_check(path: str) -> Check:
    existing = path
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    writable = os.access(existing, os.W_OK)
    hint = "" if writable else "make it writable, or set RINGFENCE_STATE_DIR: without a journal nothing runs"
    return Check("journal", writable, path, hint)
