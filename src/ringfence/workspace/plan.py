"""Decides what of a diff is committed: what is meant, what a rule leaves out, what the host has changed as well.

Nothing is written here. Three questions, in this order:

1. *Meant?* The selection names paths or hunks. A new directory comes along with what is chosen in it.
2. *Allowed?* Never: what the blacklist names, special files, what would lead to another file system. Not without being
   asked for: protected names, and what `held` holds back. A directory goes only if everything in it goes.
3. *Still true?* The host's entry must be the one that the shadow knows; else it is a conflict, unless it is a text
   whose old content was kept and both sides can be merged.

A refusal leaves out one path; a conflict stops the whole commit.
"""

import os
import stat
from collections.abc import Callable

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument, NotFound
from ringfence.values.change import Change, ChangeKind, CommitRefusal, HunkChoice, Selection
from ringfence.workspace.bases import base_of
from ringfence.workspace.layers import Layers
from ringfence.workspace.lines import mark_of, take_hunks
from ringfence.workspace.merge import merged
from ringfence.workspace.patch import is_text_change
from ringfence.workspace.tree import ancestors, is_in_tree, join

Held = Callable[[Layers, Change], str | None]
"""Says why a change should not be committed unseen, or None."""


def nothing_held(_: Layers, __: Change) -> None:
    """Holds nothing back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTerms:
    """How a commit is meant; see `commit`."""

    selection: Selection = field(default_factory=Selection)
    seen: tuple[Change, ...] | None = None
    allow_protected: bool = False
    merge: bool = False
    held: Held = nothing_held


@dataclass(frozen=True, slots=True)
class Wanted:
    """One change that will be applied."""

    change: Change
    content: bytes | None = None
    """What is written, if it is not what the shadow has."""
    is_merged: bool = False

    @property
    def is_partial(self) -> bool:
        """Whether the shadow still differs afterwards."""
        return self.content is not None and not self.is_merged


@dataclass(frozen=True, slots=True)
class CommitPlan:
    wanted: tuple[Wanted, ...]
    refused: tuple[CommitRefusal, ...]
    conflicts: tuple[CommitRefusal, ...]


def plan(layers: Layers, found: tuple[Change, ...], terms: CommitTerms) -> CommitPlan:
    """Decide about every change.

    Raises:
        InvalidArgument, NotFound: the selection names what is not there, or part of what belongs together.
    """
    planner = _Planner(layers, found, terms)
    planner.choose()
    planner.refuse()
    planner.check_parents()
    planner.keep_full_directories()
    return planner.settled()


class _Planner:
    def __init__(self, layers: Layers, found: tuple[Change, ...], terms: CommitTerms) -> None:
        self._layers = layers
        self._every = {change.path: change for change in found}
        self._terms = terms
        self._protected = layers.shadow.protected_names
        self._choices = {choice.path: choice for choice in terms.selection.hunks}
        self._chosen: dict[str, Change] = {}
        self._hosts: dict[str, os.stat_result | None] = {}
        self._forbidden: set[str] = set()
        self._refused: dict[str, CommitRefusal] = {}

    # --- meant? -------------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        paths = self._terms.selection.paths
        tops = None if paths is None else [_normal(path) for path in paths]
        for change in self._every.values():
            if tops is None or change.path in self._choices or any(_is_meant(change, top) for top in tops):
                self._chosen[change.path] = change
        for top in (*(tops or ()), *self._choices):
            if not any(_is_meant(change, top) for change in self._every.values()):
                raise NotFound(f"nothing was changed at {top!r}", hint="look at the changes")
        for path in self._choices:
            if not is_text_change(self._every[path]):
                raise InvalidArgument(f"{path!r} has no hunks to choose from", hint="commit it as a whole")

    # --- allowed? -----------------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        for change in self._every.values():
            if (refusal := self._refusal(change)) is not None:
                self._forbidden.add(change.path)
                self._leave_out(change.path, refusal)

    def _protecting(self, change: Change, path: str) -> str | None:
        """The row that protects a path; a file or link called `.git` leads to other hooks as well as new hooks do."""
        row = self._protected.covering(path)
        if row is None and change.new is not None and not change.new.is_directory:
            row = self._protected.led_elsewhere_by(path)
        return row

    def _refusal(self, change: Change) -> CommitRefusal | None:
        for path in filter(None, (change.path, change.source)):
            if (rule := self._layers.denying(path)) is not None:
                return CommitRefusal(change.path, "the blacklist hides this name", rule)
            if change.refused:
                return CommitRefusal(change.path, change.refused, "never committed")
            if not self._terms.allow_protected and (row := self._protecting(change, path)) is not None:
                why = "programs of the host act on it unasked"
                return CommitRefusal(change.path, why, f"protected: {row}", "allow_protected commits it")
        if (reason := self._terms.held(self._layers, change)) is not None:
            return CommitRefusal(change.path, reason, "held back", "look at it, then commit without holding it back")
        if self._is_elsewhere(change.path):
            return CommitRefusal(change.path, "lies on another file system than the project", "one file system")
        return None

    def _is_elsewhere(self, path: str) -> bool:
        """Whether something is mounted on the way to a path, or on it."""
        for place in (path, *ancestors(path)):
            status = self._host(place)
            if status is not None:
                return status.st_dev != self._layers.lower.device
        return False

    def _leave_out(self, path: str, refusal: CommitRefusal) -> None:
        if self._chosen.pop(path, None) is not None:
            self._refused[path] = refusal

    def check_parents(self) -> None:
        """See that what is added has a directory to go to."""
        for change in sorted(self._chosen.values(), key=lambda one: one.path):
            if change.new is None:
                continue
            for above in reversed(tuple(ancestors(change.path))):
                if above in self._chosen or self._is_directory(above):
                    continue
                made = self._every.get(above)
                if made is not None and made.kind is ChangeKind.ADDED and above not in self._forbidden:
                    self._chosen[above] = made
                elif above in self._forbidden:
                    self._leave_out(
                        change.path, CommitRefusal(change.path, f"lies in {above!r}, which stays", "parents")
                    )
                    break
                elif made is not None:
                    raise InvalidArgument(f"{change.path!r} needs {above!r}", hint=f"select {above!r} as well")
                else:
                    self._leave_out(
                        change.path,
                        CommitRefusal(change.path, f"the host has no directory {above!r} any more", "parents"),
                    )
                    break

    def _is_directory(self, path: str) -> bool:
        status = self._host(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _host(self, path: str) -> os.stat_result | None:
        """What the host has; asked once, since the steps look again."""
        if path not in self._hosts:
            self._hosts[path] = self._layers.lower.status(path)
        return self._hosts[path]

    def keep_full_directories(self) -> None:
        """Leave out the removal of directories in which something stays; the deepest first, since they stay, too."""
        sources = {change.source for change in self._chosen.values() if change.source}
        for path, change in sorted(self._chosen.items(), reverse=True):
            if change.old is None or not change.old.is_directory or (change.new and change.new.is_directory):
                continue
            for name in self._layers.lower.names(path):
                below = join(path, name)
                gone = self._chosen.get(below)
                if below in sources or (gone is not None and gone.new is None):
                    continue
                self._leave_out(path, CommitRefusal(path, f"{below!r} in it stays", "directories go empty"))
                break

    # --- still true? --------------------------------------------------------------------------------------------------

    def settled(self) -> CommitPlan:
        wanted: list[Wanted] = []
        conflicts: list[CommitRefusal] = []
        seen = None if self._terms.seen is None else {change.path: change for change in self._terms.seen}
        for change in self._chosen.values():
            if seen is not None and seen.get(change.path) != change:
                why = "is not as it was looked at"
                conflicts.append(CommitRefusal(change.path, why, "seen", "look at the changes again"))
                continue
            settled = self._settled(change)
            if isinstance(settled, CommitRefusal):
                conflicts.append(settled)
            else:
                wanted.append(settled)
        refused = sorted(self._refused.values(), key=lambda refusal: refusal.path)
        return CommitPlan(tuple(wanted), tuple(refused), tuple(conflicts))

    def _settled(self, change: Change) -> Wanted | CommitRefusal:
        if (why := self._conflict(change)) is not None:
            return self._merged(change, why) if self._terms.merge else _conflict(change, why)
        if (choice := self._choices.get(change.path)) is not None:
            return self._by_hunks(change, choice)
        return Wanted(change)

    def _conflict(self, change: Change) -> str | None:
        """What the host has done to the same path."""
        path = change.path
        if change.source:
            status = self._host(change.source)
            if status is None or not self._layers.knows(change.source, status):
                return f"the host has changed {change.source!r}, which was renamed"
        status = self._host(path)
        if change.old is None or change.source:
            if status is not None:
                return "the host has made something of that name"
            if not change.source and change.began_on_host and self._layers.has_vanished(path):
                return "the host has removed it, or the directory that it was renamed in has changed"
            return None
        if status is None:
            return "the host has removed it"
        is_directory = change.old.is_directory  # its time moves with every name in it, and those are judged themselves
        return None if is_directory or self._layers.knows(path, status) else "the host has changed it since"

    def _merged(self, change: Change, why: str) -> Wanted | CommitRefusal:
        if not is_text_change(change):
            return _conflict(change, f"{why}, and it is not a change from one text to another")
        if change.path in self._choices:
            return _conflict(change, f"{why}, and single hunks are not merged")
        base = base_of(self._layers, change.path)
        if base is None:
            return _conflict(change, f"{why}, and its old content was not kept before that")
        ours, theirs = self._layers.lower.read(change.path), self._layers.upper.read(change.path)
        both = merged(base, ours, theirs)
        if both is None:
            return _conflict(change, f"{why}, in the same lines")
        return Wanted(change, both, is_merged=True)

    def _by_hunks(self, change: Change, choice: HunkChoice) -> Wanted | CommitRefusal:
        old, new = self._layers.lower.read(change.path), self._layers.upper.read(change.path)
        if mark_of(old, new) != choice.mark:
            return _conflict(change, "its hunks are not as they were looked at")
        content = take_hunks(old, new, choice.numbers)
        return Wanted(change, None if content == new else content)


def _conflict(change: Change, why: str) -> CommitRefusal:
    return CommitRefusal(change.path, why, "conflict", "leave it out, or look at both and decide")


def _is_meant(change: Change, top: str) -> bool:
    return is_in_tree(change.path, top) or (bool(change.source) and is_in_tree(change.source, top))


def _normal(path: str) -> str:
    """A selected path, relative to the project; the empty one is all of it."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise InvalidArgument(f"{path!r} is not a path of the project", hint="name it relative to the project")
    normal = os.path.normpath(path) if path else "."
    return "" if normal == "." else normal
