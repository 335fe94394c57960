"""Takes the first engine that is available: the one that is asked for, then those that the policy names instead.

An engine that is not available is an error, unless the policy names another that guarantees at least as much. Which
one it became, and why, is in the notes of the wall, and so in every result and record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import replace
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    from ringfence.engines.base import Box, Engine
    from ringfence.values.grant import Grant

USUAL: Final = frozenset(Guarantee) - {
    Guarantee.OWN_KERNEL,
    Guarantee.DENIED_AT_OPEN,
    Guarantee.NO_NATIVE_CODE,
    Guarantee.OWN_LOOPBACK,  # a convenience of programs: nothing is safe because of it
}
"""What every engine of ours promises where it works; the others have to be asked for."""


class FirstEngine:
    """Several engines as one.

    Args:
        engines: in the order in which they are tried; the first is the one that is asked for.
    """

    def __init__(self, engines: tuple[Engine, ...]) -> None:
        self._engines = engines

    @property
    def name(self) -> str:
        return self._engines[0].name

    async def open(self, grant: Grant) -> Box:
        """A box of the first that gives one.

        Raises:
            InitializationFailed: none does; says why each one does not.
        """
        first, *others = self._engines
        try:
            return await first.open(grant)
        except InitializationFailed as fault:
            refused = [f"{first.name}: {fault.message}"]
        wanted = replace(grant, requires=grant.requires | _expected(grant))
        for engine in others:
            try:
                box = await engine.open(wanted)
            except InitializationFailed as fault:
                refused.append(f"{engine.name}: {fault.message}")
            else:
                box.note(f"{engine.name} instead of {first.name}, as the policy allows ({refused[0]})")
                return box
        raise InitializationFailed(
            f"no engine that the policy allows is available ({'; '.join(refused)})",
            hint="repair the first, or name another in `alternatives` of the policy; run `ringfence doctor`",
        )


@contextmanager
def explaining(why: str) -> Iterator[None]:
    """Say with an engine's refusal why so much was asked of it; nothing, where that is empty.

    Raises:
        InitializationFailed: what is raised within, with the reason.
    """
    try:
        yield
    except InitializationFailed as fault:
        if not why:
            raise
        raise InitializationFailed(f"{why}, and {fault.message}", hint=fault.hint) from fault


def _expected(grant: Grant) -> frozenset[Guarantee]:
    """What the first engine would have given; less where the grant itself gives it up."""
    shown = {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN} if grant.read_outside else set()
    return USUAL - shown
