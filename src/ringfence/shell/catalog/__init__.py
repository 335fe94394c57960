"""Programs that run other programs, read files or send them: rows of facts, and the reason beside each.

A row says how to find the command inside. A program that is in no row is not taken to be harmless: see `named` and
`suspects`. Add a row rather than a special case.
"""

from ringfence.shell.catalog.git import GIT_CODE_KEYS, GIT_CODE_OPTIONS, GIT_TAKES
from ringfence.shell.catalog.interpreters import INTERPRETERS, LOADER_LOADS, LOADER_TAKES, LOADERS, SHELL_TAKES, SHELLS
from ringfence.shell.catalog.runs import (
    CODE_BY_OPTION,
    CODE_OPERANDS,
    CONTAINER_TAKES,
    CONTAINERS,
    LOADS_BY_OPTION,
    ORDINARY_RUNNERS,
    PARALLEL_TAKES,
    RUNS_BY_NAME,
    RUNS_BY_OPTION,
    RUNS_THE_REST,
    SSH_COMMANDS,
    SSH_FILES,
    SSH_LIKE,
    STDIN_LANGUAGES,
)
from ringfence.shell.catalog.wrappers import WRAPPERS, Wrapper

__all__ = [
    "CODE_BY_OPTION",
    "CODE_OPERANDS",
    "CONTAINERS",
    "CONTAINER_TAKES",
    "GIT_CODE_KEYS",
    "GIT_CODE_OPTIONS",
    "GIT_TAKES",
    "INTERPRETERS",
    "LOADERS",
    "LOADER_LOADS",
    "LOADER_TAKES",
    "LOADS_BY_OPTION",
    "ORDINARY_RUNNERS",
    "PARALLEL_TAKES",
    "RUNS_BY_NAME",
    "RUNS_BY_OPTION",
    "RUNS_THE_REST",
    "SHELLS",
    "SHELL_TAKES",
    "SSH_COMMANDS",
    "SSH_FILES",
    "SSH_LIKE",
    "STDIN_LANGUAGES",
    "WRAPPERS",
    "Wrapper",
]
