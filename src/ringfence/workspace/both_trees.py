"""A project and its shadow, both open: what every way of reading a shadow needs."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import Damaged, PathAccessDenied, PermissionDenied
from ringfence.values.change import NodeKind
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.statefile import read_json, write_json
from ringfence.workspace.tree import LONGEST_PATH, Tree, ancestors, join, kind_of

MOST_TOUCHED: Final = 1_000_000
"""Names; the agent decides how many it makes, and each is kept in memory."""
KNOWN_FILE: Final = "known.json"
SPECIAL: Final = "it is a fifo, a socket or a device"


@dataclass(frozen=True, slots=True)
class TouchedPath:
    """A name that may differ from the host's."""

    path: str
    status: os.stat_result | None
    """In the shadow; None if it is gone."""
    from_host: bool = False
    """Whether it began as the host's."""
    refused: str = ""

    @property
    def stamp(self) -> int:
        return 0 if self.status is None else self.status.st_ctime_ns


class BothTrees:
    """Owns both trees; close it."""

    def __init__(self, shadow: Shadow) -> None:
        """
        Raises:
            PermissionDenied: the project or the shadow cannot be opened, or another project is in its place.
            Damaged: what was remembered makes no sense.
        """
        self.shadow = shadow
        self.denying: Callable[[str], str | None] = shadow.denials()
        self.known = _read_known(shadow)
        try:
            self.lower = Tree(shadow.lower)
            try:
                self.upper = Tree(shadow.upper)
            except BaseException:
                self.lower.close()
                raise
        except OSError as fault:
            raise PermissionDenied(f"cannot look into shadow {shadow.id}: {fault}") from fault
        if os.fstat(self.lower.top).st_ino != shadow.lower_inode:
            self.close()
            raise PermissionDenied(
                f"{shadow.lower} is another directory than the one that shadow {shadow.id} was made of",
                hint="put the project back in its place, or discard the shadow",
            )

    def close(self) -> None:
        """A second time does nothing."""
        self.lower.close()
        self.upper.close()

    def learn(self, paths: Iterable[str], others: Iterable[os.stat_result] = ()) -> None:
        """Remember that the host's entries at these paths, and these others, are as we left them."""
        for status in (*map(self.lower.status, paths), *others):
            if status is not None:
                self.known[status.st_ino] = status.st_ctime_ns
        write_json(self.shadow.directory / KNOWN_FILE, self.known)

    def is_known(self, status: os.stat_result) -> bool:
        """Whether the host's entry is as we left it."""
        return self.known.get(status.st_ino) == status.st_ctime_ns

    def why_refused(self, path: str, status: os.stat_result) -> str:
        """What speaks against an entry of the shadow before its content is looked at."""
        if len(os.fsencode(path)) > LONGEST_PATH:
            return "its path is longer than programs of the host can use"
        if (rule := self.denying(path)) is not None:
            return f"the blacklist hides this name ({rule})"
        kind = kind_of(status.st_mode)
        if kind is NodeKind.SPECIAL:
            return SPECIAL
        needed = stat.S_IRUSR | (stat.S_IXUSR if kind is NodeKind.DIRECTORY else 0)
        if kind is not NodeKind.LINK and os.geteuid() != 0 and status.st_mode & needed != needed:
            return "its mode closes it to its owner"
        return ""

    def gone(self, path: str) -> Iterator[TouchedPath]:
        """Everything that the host has at or below a path, but what is hidden and the directories that hold it."""
        found: list[tuple[str, os.stat_result]] = []
        kept: dict[str, str] = {}
        waiting = [path]
        while waiting:
            place = waiting.pop()
            status = self.lower.status(place)
            if status is None:
                continue
            if (rule := self.denying(place)) is not None:
                kept.update(dict.fromkeys(ancestors(place), rule))
                continue
            found.append((place, status))
            if stat.S_ISDIR(status.st_mode):
                waiting += [join(place, name) for name in reversed(self.lower.names(place))]
        for place, _ in found:
            held = kept.get(place)
            yield TouchedPath(place, None, True, f"holds what is hidden ({held}), so it stays" if held else "")


def too_many(shadow: Shadow) -> PathAccessDenied:
    return PathAccessDenied(
        str(shadow.upper),
        f"more than {MOST_TOUCHED} names were touched",
        rule="MOST_TOUCHED",
        hint="remove what was made in masses, or discard the shadow",
    )


def _read_known(shadow: Shadow) -> dict[int, int]:
    """The time of the last change of each inode that was our own doing: a commit moves it for all names of a file."""
    path = shadow.directory / KNOWN_FILE
    try:
        return {int(inode): int(changed) for inode, changed in read_json(path).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise Damaged(f"is not ours: {fault}", source=str(path), hint="discard the shadow") from fault
