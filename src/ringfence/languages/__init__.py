"""Languages other than the shell's: how code in each is run, and what has to be done to it before. Pure, no I/O."""

from ringfence.languages.registry import LANGUAGES, Invocation, Language, find, invocation
from ringfence.languages.typescript import erase

__all__ = ["LANGUAGES", "Invocation", "Language", "erase", "find", "invocation"]
