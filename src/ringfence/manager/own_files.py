"""What Ringfence itself reads, as paths of the host: none of it may be written, or made, from inside a box.

A configuration that a box could write would widen the next run; so would a policy, a program that builds walls, a key
that signs the journal, or a shadow's own notes on what it stands for. They are protected by where they really lie: each
link on the way to one of them, and what it leads to in the end, whether it exists already or not. What runs us is
found by the wall itself (`confinement/linux/own.py`).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ringfence.dataclass import dataclass
from ringfence.errors import PermissionDenied
from ringfence.manager.configuring import agents_directory, state_directory
from ringfence.manager.shadowing import shadows_directory
from ringfence.policy.config import config_location
from ringfence.values.paths import is_inside
from ringfence.workspace.places import snapshots_directory

_LINKS_MAX = 64
_WASI = "RINGFENCE_WASI_DIR"
_PROGRAMS = ("RINGFENCE_RUNSC_PATH",)
_SIGNING_KEY = "RINGFENCE_AUDIT_KEY"
_PUBLIC = ".pub"


@dataclass(frozen=True, slots=True)
class OwnFiles:
    files: tuple[str, ...] = ()
    """Absolute, as they were named."""
    directories: tuple[Path, ...] = ()
    """Those that Ringfence keeps things in."""

    def below(self, roots: Iterable[Path]) -> tuple[str, ...]:
        """What of it lies below a writable directory, and the links there that lead to it, all resolved.

        A directory of ours that is missing there is made: a placeholder would be in our own way.

        Raises:
            PermissionDenied: it cannot be made.
        """
        tops = tuple(map(os.fspath, roots))
        found: dict[str, None] = {}
        for path in self.files:
            found |= dict.fromkeys(step for step in _steps(path) if is_strictly_below(step, tops))
        for directory in map(os.fspath, self.directories):
            steps = [step for step in _steps(directory) if is_strictly_below(step, tops)]
            if steps:
                _make(directory)
            found |= dict.fromkeys(steps)
        return tuple(found)


def own_files(
    environ: Mapping[str, str],
    home: str,
    *,
    config: str | os.PathLike[str] | None,
    policies: Iterable[str],
    bwrap: str | None,
) -> OwnFiles:
    """What a run reads or starts by a name that somebody gave, or that has a default.

    Args:
        policies: where those in force come from: a file, or a word for a text that was never in one.
        bwrap: a path, or a name that is looked for on PATH.
    """
    found = [os.fspath(config)] if config is not None else []
    # The usual places too, if another one is named now: the next run may name none.
    found += (*config_location(environ, home), *config_location({}, home))
    found += filter(os.path.lexists, policies)
    key = environ.get(_SIGNING_KEY, "").strip()
    found += [key, key + _PUBLIC] if key else []
    found += (path for path in (bwrap, *map(environ.get, _PROGRAMS)) if path and os.path.isabs(path))
    directories = (
        state_directory(environ, home),
        shadows_directory(environ, home),
        snapshots_directory(environ, home),
        wasi_directory(environ, home),
        agents_directory(environ, home),
    )
    return OwnFiles(tuple(dict.fromkeys(map(os.path.abspath, found))), tuple(map(Path.absolute, directories)))


def wasi_directory(environ: Mapping[str, str], home: str) -> Path:
    """Where trust in bundles, and compiled code, lie; the engine wasi knows the same."""
    return Path(environ.get(_WASI) or os.path.join(home, ".ringfence", "wasi"))


def _steps(path: str) -> Iterator[str]:
    """Every link on the way, where it lies, and where the path leads in the end, whether something is there or not."""
    done, todo, links = "/", [part for part in reversed(path.split("/")) if part not in ("", ".")], 0
    while todo:
        done = os.path.normpath(os.path.join(done, todo.pop()))
        try:
            target = os.readlink(done)
        except OSError:
            continue
        links += 1
        if links > _LINKS_MAX:
            return
        yield done
        done = "/" if target.startswith("/") else os.path.dirname(done)
        todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    yield done


def _make(directory: str) -> None:
    """What is ours and missing is made: a placeholder there would be in our own way."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as fault:
        raise PermissionDenied(
            f"{directory} is Ringfence's own, lies in a writable directory and cannot be made: {fault.strerror}",
            hint="name a directory elsewhere",
        ) from fault


def is_strictly_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(is_inside(path, top) for top in tops)
