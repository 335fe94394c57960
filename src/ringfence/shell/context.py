"""What a check is told besides the facts, and how a path of the text becomes a place on the machine."""

import posixpath
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.facts import CheckAnswer, Finding, Span, Strictness
from ringfence.values.paths import is_below

_MAGIC: Final = re.compile(r"/proc/(?:self|thread-self|\d+|\*|\?+|\$\$)/(?:root|cwd)(?=/|\Z)|/dev/fd/\d+(?=/)")


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Where the command would run, and how strict the checks are."""

    workspace: str = "/workspace"
    home: str = "/home/agent"
    strictness: Strictness = Strictness.NORMAL
    denied_commands: tuple[str, ...] = ()
    """Names or globs; further words, as in `git push`, must be among the arguments."""
    sensitive: bool = True
    """False: touching a sensitive file is only warned of."""
    tmp_directories: tuple[str, ...] = ("/tmp", "/var/tmp", "/private/tmp", "/dev/shm")
    tmp_prefixes: tuple[str, ...] = tuple(
        f"{directory}/{name}"
        for directory in ("/tmp", "/private/tmp", "/var/tmp")
        for name in ("ringfence", "ringfence-agent", "sage", "sage-agent")
    )
    """The product's own, and those of the design document, below which it may always write."""
    own_tmp_only: bool | None = None
    """Writes below the temporary directories only below those prefixes; None: under STRICT."""
    writable: tuple[str, ...] = ()
    """Further directories that are granted for writing: a write below one is like a write into the workspace."""
    warn_operators: bool = False
    """NORMAL warns of every operator that STRICT forbids, as the design document's validator does."""

    @property
    def tmp_is_confined(self) -> bool:
        return self.strictness is Strictness.STRICT if self.own_tmp_only is None else self.own_tmp_only

    def place(self, path: str) -> str:
        """The absolute, tidy form of a path as it stands in the facts."""
        return _place(path, self.workspace, self.home)

    def inside(self, place: str) -> bool:
        return self.root_of(place) is not None

    def root_of(self, place: str) -> str | None:
        """The workspace, or the granted directory, that a place lies in."""
        return _root_of(place, self.workspace, self.writable)


@lru_cache(maxsize=4096)
def _root_of(place: str, workspace: str, writable: tuple[str, ...]) -> str | None:
    roots = map(posixpath.normpath, (workspace, *writable))
    return next((root for root in roots if is_below(place, root)), None)


@lru_cache(maxsize=4096)
def _place(path: str, workspace: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif not path.startswith("/"):
        path = posixpath.join(workspace, path)
    path = posixpath.normpath(path)
    if path.startswith("//"):
        path = path[1:]  # POSIX lets two slashes mean something else; Linux does not
    for _ in range(8):
        tidied = posixpath.normpath(_MAGIC.sub("/", path, count=1).replace("//", "/")) if _MAGIC.match(path) else path
        if tidied == path:
            break
        path = tidied
    return path


def may_be(place: str, pattern: bool, target: str) -> bool:
    """Whether `place`, perhaps a glob, may stand for exactly `target`."""
    if not pattern:
        return place == target
    mine, theirs = place.split("/"), target.split("/")
    return len(mine) == len(theirs) and all(
        segment_may_be(left, right) for left, right in zip(mine, theirs, strict=True)
    )


def segment_may_be(glob: str, name: str) -> bool:
    """One segment of a glob against a name; a leading dot has to be written, as in the shell."""
    if glob == name:
        return True
    if name.startswith(".") and not glob.startswith("."):
        return False
    return fnmatchcase(name, glob.replace("[^", "[!"))


def say(
    check: str, answer: CheckAnswer, rule: str, why: str, span: Span, context: CheckContext, *, firm: bool = False
) -> tuple[Finding, ...]:
    """One finding, by strictness: STRICT turns a warning into a block, PERMISSIVE drops it unless it is `firm`."""
    if answer is CheckAnswer.WARN:
        if context.strictness is Strictness.STRICT:
            answer = CheckAnswer.BLOCK
        elif context.strictness is Strictness.PERMISSIVE and not firm:
            return ()
    if answer is CheckAnswer.PASS:
        return ()
    return (Finding(check, answer, why, span, rule),)
