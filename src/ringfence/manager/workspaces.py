"""Shadows of projects, for people and programs: made, looked at, committed, thrown away. Commits are in the journal.

A `Workspaces` opens the store that the environment names, settles commits that were interrupted, and says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from ringfence.audit import record
from ringfence.audit.commits import EVENT, committed, committing
from ringfence.audit.redact import Redactor
from ringfence.dataclass import replace
from ringfence.errors import InvalidArgument, NotFound
from ringfence.manager.assemble import assemble
from ringfence.manager.configuring import home_directory, open_journal
from ringfence.manager.options import OptionFields, SandboxOptions, StrPath, make_options
from ringfence.manager.policing import CODE_TOOL
from ringfence.manager.shadowing import shadows_directory
from ringfence.values.principal import Principal
from ringfence.workspace.bases import keep_bases
from ringfence.workspace.commit import commit
from ringfence.workspace.copying import Progress as Progress
from ringfence.workspace.copying import no_progress
from ringfence.workspace.diff import changes
from ringfence.workspace.leftovers.holding import holding_back
from ringfence.workspace.patch import Patch, hunks_of, line_counts, patch
from ringfence.workspace.places import snapshots_directory
from ringfence.workspace.plan import nothing_held
from ringfence.workspace.recover import recover
from ringfence.workspace.shadow import STATE_FILE
from ringfence.workspace.shadow import Shadow as Shadow  # front doors see it through us
from ringfence.workspace.shadow import ShadowKind as ShadowKind
from ringfence.workspace.shadow_store import ShadowStore
from ringfence.workspace.snapshots.manifest import Snapshot as Snapshot
from ringfence.workspace.snapshots.store import SnapshotStore

if TYPE_CHECKING:
    from ringfence.values.change import Change, Committed, FileHunks, Recovered, Selection
    from ringfence.values.grant import Grant
    from ringfence.workspace.snapshots.comparing import Difference
    from ringfence.workspace.snapshots.saving import Progress as SaveProgress


class Workspaces:
    """All shadows of one user.

    Args:
        environ: ours if not given; RINGFENCE_SHADOWS_DIR names the directory that they lie in.
        who: who the journal says commits.

    Raises:
        PermissionDenied: the directory cannot be used.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, *, who: Principal | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._home = home_directory(self._environ)
        self._who = replace(who or Principal(), tool=EVENT)
        self._store = ShadowStore(shadows_directory(self._environ, self._home))
        self._snapshots = SnapshotStore(snapshots_directory(self._environ, self._home))
        self._journal = open_journal(self._environ, self._home)
        self.recovered: tuple[Recovered, ...] = recover(self._store)
        """Commits that were interrupted, and what has just become of them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._journal.close()

    def new(
        self,
        options: SandboxOptions | StrPath | None = None,
        *,
        name: str = "",
        kind: ShadowKind | None = None,
        progress: Callable[[Progress], None] = no_progress,
        **fields: Unpack[OptionFields],
    ) -> Shadow:
        """Make a shadow of a project, with the blacklist and the protected names that are in force for it.

        Args:
            options: those of the sandbox that will work on it, so that all that they hide is hidden in it; or the
                project.
            fields: single fields of `SandboxOptions`.

        Raises:
            InvalidArgument, PathAccessDenied: it cannot be granted.
            PermissionDenied, InitializationFailed: it cannot be made.
        """
        chosen = make_options(options, fields)
        if chosen.shadow is not None:
            raise InvalidArgument("a shadow of a shadow", hint="leave shadow= out; see `fork`")
        assembly = assemble(chosen, environ=self._environ)
        assembly.journal.close()
        grant = assembly.grant
        if chosen.tool is None:  # what is hidden from code may be more than what is hidden from commands
            hidden = (*grant.denied, *assembly.for_tool(CODE_TOOL).grant.denied)
            grant = replace(grant, denied=tuple(dict.fromkeys(hidden)))
        return self.new_for(grant, name=name, kind=kind, progress=progress)

    def new_for(
        self,
        grant: Grant,
        *,
        name: str = "",
        kind: ShadowKind | None = None,
        progress: Callable[[Progress], None] = no_progress,
    ) -> Shadow:
        """The same for a grant that exists already."""
        return self._store.new(
            grant.workspace,
            denied=grant.denied,
            protected=grant.protected_in(grant.workspace),
            name=name,
            kind=kind,
            progress=progress,
        )

    def list(self) -> tuple[Shadow, ...]:
        """The oldest first."""
        return self._store.list()

    def broken(self) -> tuple[tuple[str, str], ...]:
        """(id, why) of those whose state cannot be read."""
        return self._store.broken()

    def find(self, text: str) -> Shadow:
        """A shadow by its id, the beginning or end of it, or its name.

        Raises:
            NotFound: there is none, or more than one.
        """
        found = [one for one in self.list() if text and (text == one.name or one.id.startswith(text))]
        found = found or [one for one in self.list() if text and one.id.endswith(text)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(one.name or one.id for one in self.list()[-5:]) or "there is none at all"
        raise NotFound(
            f"{'no shadow' if not found else f'{len(found)} shadows'} for {text!r}",
            hint=f"`ringfence workspace list` shows them; the last ones: {known}",
        )

    def changes(self, shadow: Shadow) -> tuple[Change, ...]:
        return changes(shadow)

    def keep_bases(self, shadow: Shadow, found: tuple[Change, ...]) -> None:
        """Keep the host's texts as they are now, so that a later commit can merge with what the host does to them."""
        with self._store.lock(shadow):
            keep_bases(shadow, found)

    def patch(self, shadow: Shadow, found: tuple[Change, ...] | None = None) -> Patch:
        """A unified diff that `git apply` takes."""
        return patch(shadow, self.changes(shadow) if found is None else found)

    def hunks(self, shadow: Shadow, change: Change) -> FileHunks | None:
        """The stretches of a changed text; None for everything else."""
        return hunks_of(shadow, change)

    def line_counts(self, shadow: Shadow, found: tuple[Change, ...]) -> dict[str, tuple[int, int]]:
        """How many lines were added and removed, by path."""
        return line_counts(shadow, found)

    def commit(
        self,
        shadow: Shadow,
        *,
        select: Selection | None = None,
        seen: tuple[Change, ...] | None = None,
        allow_protected: bool = False,
        merge: bool = False,
    ) -> Committed:
        """Carry changes over to the project, and write down what was carried.

        Args:
            select: which; all by default.
            seen: the changes as somebody looked at them; what has become different since is a conflict.
            allow_protected: also protected names and what other tools would run, but never what the blacklist hides.
            merge: merge text that the host changed too, where the old text is known.

        Raises:
            PermissionDenied: the shadow is in use, the system refused something, or the journal cannot be written; the
            project is as it was.
        """
        redact = Redactor(self._journal.settings.redact, ())
        self._journal.prepare()
        who = record.without_secrets(self._who, redact)
        entry = self._journal.open(os.urandom(8).hex(), committing(shadow.id, shadow.lower, who, redact))
        held = nothing_held if allow_protected else holding_back()
        try:
            done = commit(shadow, select=select, seen=seen, allow_protected=allow_protected, merge=merge, held=held)
        except BaseException as fault:
            entry.close(record.failed(fault, redact))
            raise
        entry.close(committed(done, redact))
        return done

    # --- snapshots --------------------------------------------------------------------------------------------------

    def save(self, shadow: Shadow, name: str, *, progress: SaveProgress | None = None) -> Snapshot:
        """Save a shadow as it is; only what changed since the last time is read.

        Raises:
            AlreadyExists, InvalidArgument: the name is taken, or none.
            PermissionDenied: the shadow is in use.
        """
        with self._store.lock(shadow):
            return self._snapshots.save(shadow.directory, name, overlay=True, progress=progress)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The oldest first."""
        return self._snapshots.list()

    def compare(self, old: str, new: str) -> tuple[Difference, ...]:
        """What differs between two snapshots, by path in the shadow."""
        inside = "upper/"
        found = self._snapshots.diff(old, new)
        return tuple(replace(one, path=one.path[len(inside) :]) for one in found if one.path.startswith(inside))

    def restore(self, shadow: Shadow, name: str) -> None:
        """Make a shadow what it was; what was done in it since then is gone.

        Raises:
            NotFound, InvalidArgument: there is no such snapshot, or it is one of another shadow.
            PermissionDenied: the shadow is in use.
        """
        if json.loads(self._snapshots.read(name, STATE_FILE)).get("id") != shadow.id:
            raise InvalidArgument(f"{name!r} is a snapshot of another shadow", hint="fork it instead")
        with self._store.lock(shadow):
            self._snapshots.restore(name, shadow.directory, in_place=True)

    def fork(self, name: str, *, shadow_name: str = "") -> Shadow:
        """A new shadow from a snapshot, beside the one that was saved.

        Raises:
            NotFound, InvalidArgument: there is no such snapshot, or it is none of a shadow.
        """
        return self._store.adopt(lambda directory: self._snapshots.fork(name, directory), name=shadow_name)

    def forget(self, name: str) -> None:
        """Delete a snapshot, and what no other one needs."""
        self._snapshots.delete(name)

    def discard(self, shadow: Shadow) -> None:
        """Remove a shadow with all that was done in it.

        Raises:
            PermissionDenied: it is in use.
        """
        self._store.discard(shadow)

    def discard_broken(self, shadow_id: str) -> None:
        self._store.discard_broken(shadow_id)


def list_shadows(environ: Mapping[str, str]) -> tuple[Shadow, ...]:
    """All shadows, the oldest first, without looking after interrupted commits: for whoever only wants names.

    Raises:
        PermissionDenied, InvalidConfig: the directory that they lie in cannot be used.
    """
    directory = shadows_directory(environ, home_directory(environ))
    return ShadowStore(directory).list() if directory.exists() else ()


def list_snapshots(environ: Mapping[str, str]) -> tuple[Snapshot, ...]:
    """The same for snapshots."""
    directory = snapshots_directory(environ, home_directory(environ))
    return SnapshotStore(directory).list() if directory.exists() else ()
