"""Settles commits that were interrupted: each is finished or undone, never left half done, and it says which.

Run it when a store is opened for work. Until then the shadows in question cannot be locked.
"""

from ringfence.errors import Busy, NotFound, RingfenceError
from ringfence.values.change import Recovered, RecoveryKind
from ringfence.workspace.commit import apply, drop_staging, tidy, undo
from ringfence.workspace.journal import CommitJournal, CommitPhase, HostWasFaster
from ringfence.workspace.layers import Layers, open_layers
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.shadow_lock import lock_shadow
from ringfence.workspace.shadow_store import ShadowStore


def recover(store: ShadowStore) -> tuple[Recovered, ...]:
    """Settle every interrupted commit of the store; those that a living process is at are left to it."""
    found = (_recovered(shadow) for shadow in store.list())
    return tuple(one for one in found if one is not None)


def _recovered(shadow: Shadow) -> Recovered | None:
    try:
        lock = lock_shadow(shadow, for_recovery=True)
    except (Busy, NotFound):
        return None  # in use, or gone meanwhile
    with lock:
        try:
            journal = CommitJournal.read(shadow)
            if journal is None:
                return None
            with open_layers(shadow) as layers:
                return _settled(layers, journal)
        except (RingfenceError, OSError) as fault:
            return Recovered(shadow.id, RecoveryKind.STUCK, (), (str(fault),))


def _settled(layers: Layers, journal: CommitJournal) -> Recovered:
    kind = RecoveryKind.UNDONE
    left: tuple[str, ...] = ()
    match journal.phase:
        case CommitPhase.STAGING:
            left = drop_staging(layers, journal).left
            journal.remove(layers.shadow)
        case CommitPhase.APPLYING:
            try:
                apply(layers, journal)
                kind = RecoveryKind.FINISHED
            except RingfenceError:
                raise
            except (HostWasFaster, OSError):
                left = undo(layers, journal)
        case CommitPhase.UNDOING:
            left = undo(layers, journal)
        case CommitPhase.APPLIED:
            left = tidy(layers, journal)
            kind = RecoveryKind.FINISHED
    return Recovered(layers.shadow.id, kind, journal.paths, left)
