"""Document 003 (engines and process sandboxes) by its own names.

The document gives commands and environment variables, which are read under its names and ours (docs/configuration.md).
What it calls a process sandbox is here as a value that can be asked what it gives on this machine:

    chosen = ProcessSandbox.from_environment()     # OPENAGENTIC_PROCESS_SANDBOX=bwrap
    chosen.probe().usable
"""

import os
from collections.abc import Mapping
from typing import Final, Self

from ringfence.confinement.base import Probe
from ringfence.confinement.choose import probe_of
from ringfence.dataclass import dataclass
from ringfence.policy.environment import ALIASES
from ringfence.policy.settings import ADAPTERS, read_settings
from ringfence.values.outcome import Result, SandboxAudit

__all__ = ["ENVIRONMENT", "PROCESS_SANDBOXES", "ProcessSandbox", "sandbox_audits"]

ENVIRONMENT: Final[Mapping[str, str]] = {
    theirs: ours for ours, theirs in ALIASES.items() if theirs.startswith("OPENAGENTIC_")
}
"""The document's variables, and what each is called here; both are read, and ours wins."""

PROCESS_SANDBOXES: Final = tuple(name for name in ADAPTERS if name not in ("auto", "none"))
"""What OPENAGENTIC_PROCESS_SANDBOX may name. Not all are built: `ProcessSandbox(name).probe()` says."""


@dataclass(frozen=True, slots=True)
class ProcessSandbox:
    """One way to confine a process."""

    name: str
    """One of `PROCESS_SANDBOXES`."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self | None:
        """The one that the environment names; None where it leaves the choice to us.

        Raises:
            InvalidConfig: it names none that there is.
        """
        adapter = read_settings(os.environ if environ is None else environ).adapter
        return cls(adapter) if adapter in PROCESS_SANDBOXES else None

    def probe(self) -> Probe:
        """What it guarantees here, found out by trying; if nothing, `missing` says why and `hint` what to do."""
        return probe_of(self.name)


def sandbox_audits(result: Result) -> tuple[SandboxAudit, ...]:
    """Which wrapper a run had, and the wrapped command, with paths of the host replaced; none if nothing ran."""
    return result.sandbox_audits
