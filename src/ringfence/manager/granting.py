"""Turns what a caller asks for and what the configuration says into a grant, with every path looked up and checked."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import InvalidConfig, PathAccessDenied
from ringfence.manager.environment import check_variables
from ringfence.manager.placing import find_places
from ringfence.policy.config import SandboxConfig, expand, is_encodable
from ringfence.policy.defaults import PROTECTED, UNMADE
from ringfence.policy.globs import PathRules, compiled, escape
from ringfence.policy.judging import INSIDE
from ringfence.policy.layer import is_below
from ringfence.policy.reading import Directory
from ringfence.policy.terms import Terms
from ringfence.values.grant import Explain, Grant
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
    python: str | os.PathLike[str] | None = None
    preload: tuple[str, ...] = ()
    explain: Explain = Explain.CHANGES
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Where the caller stands: its environment, home and state."""

    environ: Mapping[str, str]
    home: str
    state: Path


def make_grant(
    wish: Wish,
    config: SandboxConfig,
    caller: Caller,
    env: Mapping[str, str],
    terms: Terms | None = None,
    policy_files: Iterable[str] = (),
) -> tuple[Grant, tuple[str, ...]]:
    """The grant, and what the caller should be told about it.

    With terms, the policy has the last word: what it hides is hidden, what it does not let a request have is refused,
    and its own files cannot be written where they lie in a writable directory.

    Raises:
        InvalidConfig: a path or row that makes no sense.
        PathAccessDenied: a directory that cannot be granted.
    """
    check_variables(wish.env)
    asked = wish.workspace if wish.workspace is not None else Path.cwd()
    hidden = _hidden_rows(terms, os.path.realpath(_text(asked))) if terms else ()
    denied = _denied_rows((*config.blacklist, *wish.deny), hidden, caller)
    rules = compiled(denied)
    workspace = _workspace(asked, caller, rules)
    notes: list[str] = list(terms.notes) if terms else []
    writable = [_directory(path, caller, rules) for path in wish.write]
    readable = [_readable(path, rules) for path in wish.read]
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
    for given in (*wish.write, *wish.read, *rows):
        _refuse_detour(os.fspath(given), granted)
    access = terms.value("filesystem_access") if terms else None
    read_outside = config.allow_read_outside if access is None else access == "read_outside"
    requires = wish.requires | (terms.requires if terms else frozenset())
    if read_outside:
        requires -= {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN}
    if _is_strict(wish, config, terms):
        requires |= {Guarantee.DENIED_AT_OPEN}
    roots = tuple(path for path in dict.fromkeys(writable) if path != workspace)
    grant = Grant(
        workspace=workspace,
        writable=roots,
        readable=tuple(dict.fromkeys(readable)),
        denied=denied,
        protected=(*PROTECTED, *UNMADE, *_inside_roots(policy_files, (workspace, *roots))),
        strict=Guarantee.DENIED_AT_OPEN in requires,
        read_outside=read_outside,
        env=(*env.items(), *wish.env),
        python=_interpreter(wish.python),
        preload=_modules(wish.preload),
        explain=_explained(wish, terms),
        limits=terms.limits(config.limits, wish.limits) if terms else wish.limits or config.limits,
        cores=terms.value("max_cpu") if terms else None,
        places=find_places(config, terms, _as_granted(config.blacklist, caller), _hidden_places(terms, workspace)),
        requires=requires,
    )
    return grant, tuple(notes)


def _is_strict(wish: Wish, config: SandboxConfig, terms: Terms | None) -> bool:
    """Whoever says so: all of them only tighten."""
    return wish.strict or config.strict or bool(terms and terms.value("filesystem.strict"))


def _explained(wish: Wish, terms: Terms | None) -> Explain:
    """At least as much as the policy wants."""
    order = tuple(Explain)
    asked = Explain(terms.value("explain", Explain.OFF)) if terms else Explain.OFF
    return max(wish.explain, asked, key=order.index)


def _interpreter(given: str | os.PathLike[str] | None) -> str | None:
    """Where the interpreter lies, by the name that was given: a virtual environment is known by it."""
    if given is None:
        return None
    text = os.path.abspath(_text(given))
    if not os.access(text, os.X_OK) or os.path.isdir(text):
        raise InvalidConfig(f"{text} is not a program", hint="give the path of a Python interpreter")
    return text


def _modules(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise InvalidConfig(f"{name!r} is not the name of a module", hint="such as json, or os.path")
    return names


def _as_granted(rows: Iterable[str], caller: Caller) -> dict[str, str]:
    """Rows of a blacklist by what they become in a grant."""
    return {expand(row, caller.environ, caller.home, glob=True): row for row in rows}


def _hidden_places(terms: Terms | None, workspace: Path) -> dict[str, str]:
    if terms is None:
        return {}
    rows = _hidden_rows(terms, os.fspath(workspace))
    return {row: str(rule.mark) for row, rule in zip(rows, terms.hidden, strict=True)}


def _hidden_rows(terms: Terms, workspace: str) -> tuple[str, ...]:
    """What the policy hides, as paths of the host; `/workspace` in it stands for the workspace."""
    rows = (rule.row for rule in terms.hidden)
    return tuple(escape(workspace) + row[len(INSIDE) :] if is_below(row, INSIDE) else row for row in rows)


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


def _inside_roots(files: Iterable[str], roots: tuple[Path, ...]) -> Iterator[str]:
    """The paths, relative to the writable directory that holds them, of files that must not be written."""
    for file in files:
        real = os.path.realpath(file)
        yield from (os.path.relpath(real, root) for root in roots if is_below(real, os.fspath(root)))


def _denied_rows(rows: Iterable[str], ready: Iterable[str], caller: Caller) -> tuple[str, ...]:
    """The blacklist, expanded, and rows that are so already; a row that names a link also hides its target.

    Our own state is always in it, and the key that signs it.
    """
    expanded = [expand(row, caller.environ, caller.home, glob=True) for row in rows]
    expanded += ready
    expanded.append(escape(os.path.realpath(caller.state)))
    key = caller.environ.get("RINGFENCE_AUDIT_KEY", "").strip()
    if key:
        expanded.append(escape(os.path.realpath(key)))
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
