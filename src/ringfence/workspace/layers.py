"""A project and its shadow as two layers: what was touched, whether the host still is as the shadow knows it.

The one face over both kinds of shadow. How an overlay is read is in `upper`, how a copy is in `copied`.
"""

import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

from ringfence.workspace.both_trees import BothTrees, TouchedPath
from ringfence.workspace.copied import CopyReading
from ringfence.workspace.shadow import Shadow, ShadowKind
from ringfence.workspace.upper import OverlayReading


class LayerReading(Protocol):
    """How one kind of shadow is read.

    Raises, from every method: OSError where the system refuses something; Damaged for a shadow that was not kept
    as it has to be; PathAccessDenied if more was touched than can be looked at.
    """

    def touched(self) -> Iterator[TouchedPath]:
        """Every name that may differ, directories before what is in them."""

    def knows(self, path: str, status: os.stat_result) -> bool:
        """Whether the host's entry is as it was when the shadow began, or as a commit of this shadow left it."""

    def has_vanished(self, path: str) -> bool:
        """Whether the host removed this; asked where the shadow has what began as the host's, and the host nothing."""

    def is_quiet(self, directory: str) -> bool:
        """Whether nobody but us has made or removed names in a directory of the host."""

    def settle(self, applied: Iterable[str], merged: Iterable[str] = ()) -> None:
        """Drop from the shadow what the host now has; only while nobody has it mounted.

        Args:
            merged: those of `applied` of which the host has more than the shadow.
        """


class Layers:
    """Both layers, open; use it in a `with`."""

    def __init__(self, trees: BothTrees, reading: LayerReading) -> None:
        self._trees = trees
        self.shadow = trees.shadow
        self.lower, self.upper = trees.lower, trees.upper
        self.denying = trees.denying
        self.gone = trees.gone
        self.learn = trees.learn
        self.touched = reading.touched
        self.knows = reading.knows
        self.has_vanished = reading.has_vanished
        self.is_quiet = reading.is_quiet
        self.settle = reading.settle

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trees.close()


def open_layers(shadow: Shadow) -> Layers:
    """
    Raises:
        PermissionDenied: the project or the shadow cannot be opened, or another project is in its place.
        Damaged: the shadow was not kept as it has to be.
    """
    trees = BothTrees(shadow)
    try:
        return Layers(trees, OverlayReading(trees) if shadow.kind is ShadowKind.OVERLAY else CopyReading(trees))
    except BaseException:
        trees.close()
        raise
