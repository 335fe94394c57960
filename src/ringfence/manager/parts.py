"""What a sandbox is put together from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from ringfence.dataclass import dataclass, replace
from ringfence.manager.assemble import Assembly, assemble
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.manager.reporting import Reporting
from ringfence.manager.shadowing import shadowed
from ringfence.values.grant import Trace
from ringfence.values.principal import Principal

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.manager.allowed import Allowed
    from ringfence.manager.leases import Lease, Open
    from ringfence.manager.options import SandboxOptions
    from ringfence.values.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxParts:
    assembly: Assembly
    """For the tool that is named, or for commands."""
    reporting: Reporting
    """To whom it is told what happens in it, and as whose."""
    confirmation: ConfirmationService | None = None
    variables: tuple[tuple[str, str], ...] = ()
    """Those that are judged with each call."""
    options: SandboxOptions | None = None
    """What was asked; None for a sandbox of a pool, which is for one tool."""
    once: bool = False
    """Whether it is for one call, so that its wall follows from that call alone."""
    is_pooled: bool = False
    """Whether its journal is left open at the end."""
    lease: Lease | None = None
    """The one that is there already."""
    open: Open | None = None
    """How a lease is made, if not by the engine."""
    origin: object = None
    """The pool's own record of it."""
    allowed: Allowed | None = None
    """What was allowed in others of the same pool."""

    @classmethod
    def of(cls, options: SandboxOptions, *, once: bool = False) -> Self:
        """The parts of a sandbox of its own.

        Raises:
            InvalidArgument, PathAccessDenied, InitializationFailed: as `Sandbox`.
        """
        if once and options.trace is None:
            options = replace(options, trace=Trace.READS)
        tool = options.tool or SHELL_TOOL
        name = os.urandom(8).hex()
        who = Principal(session_id=name, agent_id=options.agent_id, org_id=options.org_id, sandbox_id=name, tool=tool)
        return cls(
            assembly=_with_shadow(assemble(options, tool=tool), options),
            reporting=Reporting(who=who, observers=tuple(options.observers)),
            confirmation=options.confirmation,
            # Those of a box that is kept are its owner's, like its policy; those of a single call come with that call.
            variables=options.variables if once else (),
            options=options,
            once=once,
        )

    def tool_for(self, request: Request) -> str:
        """As which of the policy's tools a request is judged."""
        if self.options is None or self.options.tool is not None:
            return self.reporting.who.tool
        return SHELL_TOOL if request.language is None else CODE_TOOL

    def assembly_for(self, tool: str) -> Assembly:
        """The same parts for another of the policy's tools.

        Raises:
            InvalidArgument: no policy knows the tool, or the shadow shows what is hidden from it.
        """
        if self.options is None or tool == self.reporting.who.tool:
            return self.assembly
        made = self.assembly.for_tool(tool)
        return made if made is self.assembly else _with_shadow(made, self.options)


def _with_shadow(assembly: Assembly, options: SandboxOptions) -> Assembly:
    if options.shadow is None:
        return assembly
    return replace(assembly, grant=shadowed(assembly.grant, options.shadow, int(options.shadow_bytes)))
