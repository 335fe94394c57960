"""Text to facts, and facts to findings: what a command line would do, and what the checks say. Pure, no I/O."""

from ringfence.shell.analyse import STREAM, analyse
from ringfence.shell.checks import answer, validate
from ringfence.shell.context import CheckContext

__all__ = ["STREAM", "CheckContext", "analyse", "answer", "validate"]
