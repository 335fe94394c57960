"""Exit codes of `ringfence run`, besides the command's own (docs/cli.md)."""

from ringfence.errors import CANNOT_RUN_CODE, NO_PROGRAM_CODE, RingfenceError, SpawnFailed
from ringfence.values.outcome import LIMIT_CODE, REFUSED_CODE, SIGNAL_BASE, TIMEOUT_CODE

FAULT_CODE = 125
"""The command was not run: the request, the configuration or the machine is at fault."""
INTERRUPTED_CODE = SIGNAL_BASE + 2
"""Ctrl-C."""

USAGE_CODE = 2
"""What the option parser exits with; a command may do so too, hence it is turned into FAULT_CODE."""


class Finished(Exception):
    """A command line has done its work and knows how to exit."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def exit_code_of(fault: RingfenceError) -> int:
    """Which code an error ends the command line with: a shell's own for a program that could not be run, else
    FAULT_CODE, whatever the error is."""
    return fault.exit_code if isinstance(fault, SpawnFailed) else FAULT_CODE


RESERVED = {
    REFUSED_CODE: "refused by the policy; it did not run",
    LIMIT_CODE: "a limit was hit",
    TIMEOUT_CODE: "timed out",
    CANNOT_RUN_CODE: "the program could not be run, or it said so itself",
    NO_PROGRAM_CODE: "there is no such program, or it said so itself",
    FAULT_CODE: "could not be run: a fault in the request, the configuration or the machine",
}
