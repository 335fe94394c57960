"""What the environment of a deployment bounds: memory, processors and network of one execution, and the pool's size.

They cap whatever the configuration, the policy and the caller say, and never raise it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.policy.environment import lookup
from ringfence.values.sizes import parse_size

if TYPE_CHECKING:
    from ringfence.values.limits import Limits

USUAL_POOL_SIZE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """None: not bounded."""

    memory_bytes: int | None = None
    cores: float | None = None
    """Processors: so many CPU seconds for each second of wall-clock time; held at any moment in containers."""

    def limits(self, limits: Limits) -> Limits:
        """These limits, where they are not beyond the bounds."""
        memory, cores = self.memory_bytes, self.cores
        bounded = limits if cores is None else limits.on_cores(cores)
        return bounded.changed(memory_bytes=None if memory is None else min(memory, limits.memory_bytes))

    def least_cores(self, cores: float | None) -> float | None:
        """The lesser of both, where there is one."""
        return min((each for each in (cores, self.cores) if each is not None), default=None)


def read_bounds(environ: Mapping[str, str]) -> Bounds:
    """RINGFENCE_MAX_MEMORY, RINGFENCE_MAX_CPU and RINGFENCE_NETWORK, also by the names of the design document.

    Raises:
        InvalidConfig: a value makes no sense; names the variable.
    """
    network = lookup(environ, "RINGFENCE_NETWORK")
    if network is not None and network.value != "none":
        raise InvalidConfig(
            f"{network.name} is {network.value!r}, and there is no network inside a box", hint="leave it out, or `none`"
        )
    return Bounds(memory_bytes=_memory(environ), cores=_cores(environ))


def pool_size(environ: Mapping[str, str]) -> int:
    """How many boxes a pool keeps ready, where its caller does not say: RINGFENCE_POOL_SIZE.

    Raises:
        InvalidConfig: it is not a number.
    """
    variable = lookup(environ, "RINGFENCE_POOL_SIZE")
    if variable is None:
        return USUAL_POOL_SIZE
    if not variable.value.isascii() or not variable.value.isdecimal():
        raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint="give a whole number, such as 10")
    return int(variable.value)


def _memory(environ: Mapping[str, str]) -> int | None:
    variable = lookup(environ, "RINGFENCE_MAX_MEMORY")
    if variable is None:
        return None
    try:
        size = parse_size(variable.value)
    except InvalidArgument as fault:
        raise InvalidConfig(f"{variable.name}: {fault.message}", hint=fault.hint) from None
    if size < 1:
        raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint="give a size above zero, such as 512m")
    return size


def _cores(environ: Mapping[str, str]) -> float | None:
    variable = lookup(environ, "RINGFENCE_MAX_CPU")
    if variable is None:
        return None
    try:
        cores = float(variable.value)
    except ValueError:
        cores = 0.0
    if not 0 < cores < 100_000:  # so that neither NaN nor infinity passes
        raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint="give a number of processors, such as 1.0")
    return cores
