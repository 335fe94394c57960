"""Turns what a caller asks for and what the configuration says into a grant, with every path looked up and checked."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import InvalidConfig, PathAccessDenied
from ringfence.manager.environment import check_variables
from ringfence.policy.config import SandboxConfig, expand, is_encodable
from ringfence.policy.defaults import PROTECTED, UNMADE
from ringfence.policy.globs import PathRules, compiled, escape
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits

REQUIRED = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.HOST_NAMES_HIDDEN,
        Guarantee.WRITES_CONFINED,
        Guarantee.PROTECTED_PATHS,
        Guarantee.NETWORK_OFF,
        Guarantee.HOST_PROCESSES_HIDDEN,
        Guarantee.KERNEL_SURFACE_REDUCED,
        Guarantee.NEVER_ROOT,
        Guarantee.TREE_DIES,
        Guarantee.MEMORY_BOUNDED,
        Guarantee.PROCESSES_BOUNDED,
    }
)
"""What a wall has to give unless the caller asks for less."""

_TOP = ("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root", "run")
_BELOW = ("usr/bin", "usr/lib", "usr/local", "var/lib", "var/log", "var/tmp")
_NOT_A_WORKSPACE = frozenset(f"/{name}" for name in ("", *_TOP, "sbin", "srv", "sys", "tmp", "usr", "var", *_BELOW))
"""Directories that belong to the system or to everybody: writable in a box, they would be the way out."""
_STEPS_MAX = 4096
_NEVER_BELOW = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller asks for."""

    workspace: str | os.PathLike[str] | None = None
    read: tuple[str | os.PathLike[str], ...] = ()
    write: tuple[str | os.PathLike[str], ...] = ()
    deny: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    limits: Limits | None = None
    requires: frozenset[Guarantee] = REQUIRED


@dataclass(frozen=True, slots=True)
class Caller:
    """Where the caller stands: its environment, home and state."""

    environ: Mapping[str, str]
    home: str
    state: Path


def make_grant(
    wish: Wish, config: SandboxConfig, caller: Caller, env: Mapping[str, str]
) -> tuple[Grant, tuple[str, ...]]:
    """The grant, and what the caller should be told about it.

    Raises:
        InvalidConfig: a path or row that makes no sense.
        PathAccessDenied: a directory that cannot be granted.
    """
    check_variables(wish.env)
    denied = _denied_rows((*config.blacklist, *wish.deny), caller)
    rules = compiled(denied)
    workspace = _workspace(wish.workspace if wish.workspace is not None else Path.cwd(), caller, rules)
    notes: list[str] = []
    writable = [_directory(path, caller, rules) for path in wish.write]
    for row in config.whitelist:
        path = expand(row, caller.environ, caller.home)
        if os.path.exists(path):
            writable.append(_directory(path, caller, rules))
        else:
            notes.append(f"filesystem.whitelist {row}: there is no {path}, so it is left out")
    granted = (workspace, *writable)
    rows = (expand(row, caller.environ, caller.home) for row in config.whitelist)
    for given in (*wish.write, *wish.read, *rows):
        _refuse_detour(os.fspath(given), granted)
    requires = wish.requires
    if config.allow_read_outside:
        requires -= {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN}
    grant = Grant(
        workspace=workspace,
        writable=tuple(path for path in dict.fromkeys(writable) if path != workspace),
        readable=tuple(dict.fromkeys(_readable(path, rules) for path in wish.read)),
        denied=denied,
        protected=(*PROTECTED, *UNMADE),
        read_outside=config.allow_read_outside,
        env=(*env.items(), *wish.env),
        limits=wish.limits or config.limits,
        requires=requires,
    )
    return grant, tuple(notes)


def _denied_rows(rows: Iterable[str], caller: Caller) -> tuple[str, ...]:
    """The blacklist, expanded; a row that names a link also hides its target. Our own state is always in it."""
    expanded = [expand(row, caller.environ, caller.home, glob=True) for row in rows]
    expanded.append(escape(os.path.realpath(caller.state)))
    real = [
        escape(os.path.realpath(path)) for path in compiled(tuple(expanded)).literals if os.path.realpath(path) != path
    ]
    return tuple(dict.fromkeys((*expanded, *real)))


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
    if real in _NOT_A_WORKSPACE or home == real or home.startswith(real.rstrip("/") + "/"):
        raise PathAccessDenied(
            text,
            "it is the root, a home or a system directory, and what is in it must not be writable",
            rule="built-in",
            hint="give a directory of its own, such as a project below your home",
        )
    if any(real.startswith(f"{top}/") for top in _NEVER_BELOW):
        raise PathAccessDenied(text, "it belongs to the kernel", rule="built-in", hint="give a plain directory")
    if not os.path.isdir(real):
        raise PathAccessDenied(text, "it is not a directory", hint="give the directory that it is in")
    _refuse_denied(text, real, rules)
    return Path(real)


def _readable(given: str | os.PathLike[str], rules: PathRules) -> Path:
    text = _text(given)
    real = _existing(text)
    if real == "/" or any(real == top or real.startswith(f"{top}/") for top in _NEVER_BELOW):
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
        is_inside = any(done.startswith(f"{root}/") for root in granted)
        if os.path.islink(done):
            target = os.readlink(done)
            inside = inside or is_inside
            done = "/" if target.startswith("/") else os.path.dirname(done)
            todo += [part for part in reversed(target.split("/")) if part]
        elif not todo and inside and not is_inside:
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
        raise InvalidConfig(f"{text!r} cannot be a path", hint="give a directory")
    return text


def _existing(text: str) -> str:
    try:
        real = os.path.realpath(text, strict=True)
        os.close(os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as fault:
        raise PathAccessDenied(
            text, f"cannot be granted: {fault.strerror}", hint="give an existing, readable path"
        ) from fault
    return real
