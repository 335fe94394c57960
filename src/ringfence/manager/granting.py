"""Turns what a caller asks for and what the configuration says into a grant, with every path looked up and checked."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.errors import FileError, InvalidArgument, NotADirectory, NotFound, PathAccessDenied
from ringfence.manager.hiding import Caller, as_granted, denied_rows, hidden_places, hidden_rows
from ringfence.manager.network_granting import grant_network
from ringfence.manager.own_files import OwnFiles
from ringfence.manager.placing import find_places
from ringfence.policy.bounds import read_bounds
from ringfence.policy.defaults import PROTECTED, UNMADE, may_be_granted
from ringfence.policy.expanding import expand, is_encodable
from ringfence.policy.globs import PathRules, compiled
from ringfence.values.grant import Grant, Trace
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits, NobodySaid
from ringfence.values.paths import is_below, is_inside

if TYPE_CHECKING:
    from ringfence.manager.options import SandboxOptions
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.reading import Directory
    from ringfence.policy.terms import Terms

BY_CALLER = "limits.wall_seconds of the caller"
"""What a wall time is capped by that came with the request."""
_STEPS_MAX = 4096
_NONE = OwnFiles()
_NEVER_BELOW = ("/proc", "/sys", "/dev")


def make_grant(
    options: SandboxOptions,
    config: SandboxConfig,
    caller: Caller,
    env: Mapping[str, str],
    terms: Terms | None = None,
    own: OwnFiles = _NONE,
) -> tuple[Grant, tuple[str, ...]]:
    """The grant, and what the caller should be told about it.

    With terms, the policy has the last word: what it hides is hidden, what it does not let a request have is refused.

    Args:
        own: what Ringfence itself reads; it cannot be written where it lies in a writable directory.

    Raises:
        InvalidArgument: a path or row that makes no sense.
        PathAccessDenied: a directory that cannot be granted.
        NetworkAccessDenied: a host, port or secret that the policy does not let a request have.
        PermissionDenied: a directory of our own cannot be made in a writable one.
    """
    asked = options.workspace if options.workspace is not None else current_directory()
    hidden = hidden_rows(terms, os.path.realpath(_text(asked))) if terms else ()
    denied = denied_rows((*config.blacklist, *options.deny), hidden, caller)
    rules = compiled(denied)
    workspace = _workspace(asked, caller, rules)
    notes: list[str] = list(terms.notes) if terms else []
    writable = [_directory(path, caller, rules) for path in options.write]
    readable = [_readable(path, rules) for path in options.read]
    if terms is not None:
        _refuse_beyond(terms, "read", readable, workspace)
        _refuse_beyond(terms, "write", writable, workspace)
        readable += [_readable(path, rules) for path in _granted(terms.read, notes)]
        writable += [_directory(path, caller, rules) for path in _granted(terms.write, notes)]
    for row in config.whitelist:
        path = expand(row, caller.environ, caller.home)
        if not os.path.exists(path):
            notes.append(f"filesystem.whitelist {row}: there is no {path}, so it is left out")
        elif terms is not None and not _covered(terms, "write", os.path.realpath(path), workspace):
            notes.append(f"filesystem.whitelist {row}: the policy does not let it be written, so it is left out")
        else:
            writable.append(_directory(path, caller, rules))
    granted = (workspace, *writable)
    rows = (expand(row, caller.environ, caller.home) for row in config.whitelist)
    for given in (*options.write, *options.read, *rows):
        _refuse_detour(os.fspath(given), granted)
    network = grant_network(options, config, caller, terms, workspace)
    notes += network.notes
    readable += _mirrors(network.readable, terms, workspace, rules, notes)
    access = terms.value("filesystem_access") if terms else None
    read_outside = config.allow_read_outside if access is None else access == "read_outside"
    required = terms.requires if terms else frozenset()
    requires = options.requires | required
    if network.grant is not None:
        _refuse_contradiction(terms, required)
        requires -= {Guarantee.NETWORK_OFF}
    if read_outside:
        requires -= {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN}
    if _mediates_opens(options, config, terms):
        requires |= {Guarantee.DENIED_AT_OPEN}
    if options.read_only and workspace in writable:
        raise InvalidArgument(f"{workspace} is to be written, and only to be read", hint="leave one of the two out")
    roots = tuple(path for path in dict.fromkeys(writable) if path != workspace)
    capped_by = _wall_capped_by(options, terms)
    bounds = read_bounds(caller.environ)
    grant = Grant(
        workspace=workspace,
        read_only=options.read_only,
        writable=roots,
        readable=tuple(dict.fromkeys((*readable, workspace) if options.read_only else readable)),
        denied=denied,
        protected=(*PROTECTED, *UNMADE),
        kept=own.below((workspace, *roots)),
        mediate_opens=Guarantee.DENIED_AT_OPEN in requires,
        read_outside=read_outside,
        env=(*env.items(), *network.variables, *options.variables),
        network=network.grant,
        python=_interpreter(options.python),
        preload=_modules(tuple(options.preload)),
        trace=_traced(options, terms),
        limits=bounds.limits(_limits(options, config, terms, capped_by)),
        wall_capped_by=capped_by,
        cores=bounds.least_cores(terms.value("max_cpu") if terms else None),
        places=find_places(config, terms, as_granted(config.blacklist, caller), hidden_places(terms, workspace)),
        requires=requires,
    )
    return grant, tuple(notes)


def _mirrors(
    paths: Iterable[str], terms: Terms | None, workspace: Path, rules: PathRules, notes: list[str]
) -> Iterator[Path]:
    """Directories that the person's own clients take packages from, as far as they may be read."""
    for path in paths:
        try:
            real = _readable(path, rules)
        except (FileError, PathAccessDenied, InvalidArgument) as fault:
            notes.append(f"packages in {path} cannot be read inside: {fault.message}")
            continue
        if terms is not None and not _covered(terms, "read", os.fspath(real), workspace):
            notes.append(f"packages in {path} cannot be read inside: the policy does not let it; see filesystem.read")
        else:
            yield real


def _refuse_contradiction(terms: Terms | None, required: frozenset[Guarantee]) -> None:
    """A policy that requires the network to be off means it; the default only says what holds without a grant."""
    setting = terms.get("requires") if terms is not None else None
    if setting is not None and Guarantee.NETWORK_OFF in required:
        raise setting.mark.fault("the network has to be off, and hosts are allowed", "leave one of the two out")


def _limits(options: SandboxOptions, config: SandboxConfig, terms: Terms | None, capped_by: str) -> Limits:
    limits = terms.limits(config.limits, options.limits) if terms else options.limits or config.limits
    seconds = float(limits.wall_seconds)
    return replace(limits, wall_seconds=seconds if capped_by else NobodySaid(seconds))


def _wall_capped_by(options: SandboxOptions, terms: Terms | None) -> str:
    """The policy's own limit, or the caller's; a default, also a configured one, is no cap."""
    said = terms.get("limits.wall") if terms is not None else None
    own = options.limits.wall_seconds if options.limits is not None else NobodySaid()
    if not isinstance(own, NobodySaid) and (said is None or own < said.value):
        return BY_CALLER
    return f"limits.wall at {said.mark}" if said is not None else ""


def _mediates_opens(options: SandboxOptions, config: SandboxConfig, terms: Terms | None) -> bool:
    """Whoever says so: all of them only tighten."""
    return options.mediate_opens or config.mediate_opens or bool(terms and terms.value("filesystem.mediate_opens"))


def _traced(options: SandboxOptions, terms: Terms | None) -> Trace:
    """At least as much as the policy wants."""
    order = tuple(Trace)
    asked = Trace(terms.value("trace", Trace.OFF)) if terms else Trace.OFF
    return max(options.level_of_trace(Trace.CHANGES), asked, key=order.index)


def _interpreter(given: str | os.PathLike[str] | None) -> str | None:
    """Where the interpreter lies, by the name that was given: a virtual environment is known by it."""
    if given is None:
        return None
    text = os.path.abspath(_text(given))
    if not os.access(text, os.X_OK) or os.path.isdir(text):
        raise InvalidArgument(f"{text} is not a program", hint="give the path of a Python interpreter")
    return text


def _modules(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise InvalidArgument(f"{name!r} is not the name of a module", hint="such as json, or os.path")
    return names


def _covered(terms: Terms, how: str, path: str, workspace: Path) -> bool:
    """Whether the policy lets a request have a directory; it does, where it has no opinion."""
    granted = terms.write if how == "write" else terms.read
    access = terms.value("filesystem_access")
    if granted is None and (access is None or (access == "read_outside" and how == "read")):
        return True
    roots = [os.fspath(workspace), *(directory.path for directory in (*(granted or ()), *(terms.write or ())))]
    return any(is_below(path, root) for root in roots)


def _refuse_beyond(terms: Terms, how: str, paths: Iterable[Path], workspace: Path) -> None:
    """Refuse what a request asks for beyond what the policy grants."""
    for path in paths:
        if not _covered(terms, how, os.fspath(path), workspace):
            setting = terms.get(f"filesystem.{how}") or terms.get("filesystem_access")
            raise PathAccessDenied(
                os.fspath(path),
                f"the policy does not let a request {how} it",
                rule=setting.place if setting else f"filesystem.{how}",
                hint=f"add it to filesystem.{how} of the policy",
            )


def _granted(directories: tuple[Directory, ...] | None, notes: list[str]) -> Iterator[str]:
    """What the policy itself grants, as far as it is there.

    A link is refused: where it leads can change after the policy was written, and by whom is not known.
    """
    for directory in directories or ():
        if not os.path.lexists(directory.path):
            notes.append(f"{directory.mark}: there is no {directory.written}, so it is left out")
        elif os.path.realpath(directory.path) != os.path.normpath(directory.path):
            real = os.path.realpath(directory.path)
            raise directory.mark.fault(
                f"{directory.written} leads through a link", f"name the directory itself: {real}"
            )
        else:
            yield directory.path


def _workspace(given: str | os.PathLike[str], caller: Caller, rules: PathRules) -> Path:
    text = _text(given)
    if os.path.islink(text.rstrip("/") or "/"):
        raise PathAccessDenied(
            text, "a workspace that is a link", hint=f"give the directory itself: {os.path.realpath(text)}"
        )
    return _directory(given, caller, rules)


def _directory(given: str | os.PathLike[str], caller: Caller, rules: PathRules) -> Path:
    """A directory that may be written, resolved and checked."""
    text = _text(given)
    real = _existing(text)
    home = os.path.realpath(caller.home)
    if not may_be_granted(real, home):
        raise PathAccessDenied(
            text,
            "it is the root, a home or a system directory, and what is in it must not be writable",
            rule="built-in",
            hint="give a directory of its own, such as a project below your home",
        )
    if any(is_inside(real, top) for top in _NEVER_BELOW):
        raise PathAccessDenied(text, "it belongs to the kernel", rule="built-in", hint="give a plain directory")
    if not os.path.isdir(real):
        raise NotADirectory("it is not a directory", path=text, hint="give the directory that it is in")
    _refuse_denied(text, real, rules)
    return Path(real)


def _readable(given: str | os.PathLike[str], rules: PathRules) -> Path:
    text = _text(given)
    real = _existing(text)
    if real == "/" or any(is_below(real, top) for top in _NEVER_BELOW):
        raise PathAccessDenied(
            text,
            "it cannot be shown as a whole",
            rule="built-in",
            hint="name what is needed; allowReadOutside shows the rest",
        )
    _refuse_denied(text, real, rules)
    return Path(real)


def _refuse_detour(text: str, granted: tuple[Path, ...]) -> None:
    """Refuse a path that enters a writable directory and leads out of it again: an agent may have made that link."""
    inside, done, todo = False, "/", [part for part in reversed(os.path.abspath(text).split("/")) if part]
    for _ in range(_STEPS_MAX):
        if not todo:
            break
        done = os.path.normpath(os.path.join(done, todo.pop()))
        is_within = any(is_inside(done, os.fspath(root)) for root in granted)
        if os.path.islink(done):
            target = os.readlink(done)
            inside = inside or is_within
            done = "/" if target.startswith("/") else os.path.dirname(done)
            todo += [part for part in reversed(target.split("/")) if part]
        elif not todo and inside and not is_within:
            raise PathAccessDenied(
                text,
                f"a link in a writable directory leads to {done}",
                hint="give the directory itself, if you meant it",
            )


def _refuse_denied(text: str, real: str, rules: PathRules) -> None:
    row = rules.matches(real)
    if row is not None:
        raise PathAccessDenied(
            text, "it is blacklisted", rule=f"filesystem.blacklist {row}", hint="the blacklist beats every grant"
        )


def _text(given: str | os.PathLike[str]) -> str:
    text = os.fspath(given)
    if not text or "\0" in text or not is_encodable(text):
        raise InvalidArgument(f"{text!r} cannot be a path", hint="give a directory")
    return text


def _existing(text: str) -> str:
    try:
        real = os.path.realpath(text, strict=True)
        os.close(os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as fault:
        why = f"cannot be granted: {fault.strerror}"
        hint = "make it first" if fault.errno == errno.ENOENT else "give a path that may be read"
        raise FileError.of(fault.errno or errno.EIO, text, why, hint=hint) from fault
    return real


def current_directory() -> Path:
    """Where we are.

    Raises:
        NotFound: nowhere any more.
    """
    try:
        return Path.cwd()
    except OSError as fault:
        raise NotFound(
            f"the current directory cannot be found: {fault.strerror}", hint="go to another one, or name a workspace"
        ) from fault
