"""A native box that was made before anybody asked for it, and what it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.engines.native.drawing import Drawing, Pins

if TYPE_CHECKING:
    from ringfence.engines.boxes.box import HelperBox


class NativeAhead:
    def __init__(self, box: HelperBox, drawing: Drawing, pins: Pins) -> None:
        self.box = box
        self._drawing = drawing
        self._pins = pins
        self._lineage = box.lineage()

    def is_like(self, drawing: Drawing | None) -> bool:
        """Whether a box by this drawing would be the same as this one, which stands and runs."""
        if drawing is None or drawing != self._drawing or not self.box.probe():
            return False
        return bool(self._lineage) and self.box.lineage() == self._lineage

    def let_go(self) -> None:
        """It has been taken, or is being closed: what it was made from counts no more."""
        self._pins.close()
