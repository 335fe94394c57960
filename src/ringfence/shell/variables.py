"""Variables whose value is run sooner or later: commands in them are walked like any other."""

import shlex
from typing import TYPE_CHECKING

from ringfence.shell.catalog.variables import COMMANDS, EDITOR_SCRIPTS, FILES, HARMLESS, OPTIONS, PROMPTS
from ringfence.shell.options import Inner
from ringfence.shell.tools import git_setting
from ringfence.shell.unwrap import unwrap
from ringfence.values.facts import Span, Via, Word

if TYPE_CHECKING:
    from ringfence.shell.running import Running


def run_value(walk: "Running", name: str, value: str, span: Span) -> None:
    """Walk what a program would run because this variable has this value."""
    if name in PROMPTS or name in FILES:
        walk.evaluate(value, span)
        found = walk.state.files.get(walk.state.key(value)) if name in FILES else None
        if found is not None:
            walk.source(found, Inner(Via.SHELL, name, stdin=True), span)
    elif name in COMMANDS:
        if name == "PROMPT_COMMAND" or not HARMLESS.fullmatch(value):
            command = value.lstrip("|- ") if name.startswith("LESS") else value
            _quietly(walk, Inner(Via.SHELL, f"variable {name}", code=Word(command, span)))
    elif name in OPTIONS:
        program = OPTIONS[name]
        for inner in unwrap(program, tuple(Word(text, span) for text in (program, *_split(value)))):
            _quietly(walk, inner)
    elif name in EDITOR_SCRIPTS:
        for inner in unwrap("vim", tuple(Word(text, span) for text in ("vim", "-c", value))):
            _quietly(walk, inner)
    elif name.startswith("GIT_CONFIG_"):
        _git(walk, name, value, span)
    elif name.startswith("BASH_FUNC_"):
        function = name.removeprefix("BASH_FUNC_").partition("%")[0].partition("(")[0]
        walk.code(Word(f"{function} {value}", span), Via.SHELL, "eval", None)


def _quietly(walk: "Running", inner: Inner) -> None:
    """A value that cannot be read as a command is not known, rather than a fault of the text that sets it."""
    problem = walk.problem
    if not inner.stdin:
        walk.inner(inner, None)
    if walk.problem is not problem:
        walk.problem = problem
        walk.doubt_code(inner)


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _git(walk: "Running", name: str, value: str, span: Span) -> None:
    """Settings by variables: numbered pairs, or all in one."""
    pairs: list[tuple[str, str]] = []
    if name == "GIT_CONFIG_PARAMETERS":
        for word in _split(value):
            key, equals, setting = word.partition("=")
            if equals:
                pairs.append((key, setting))
    else:
        number = name.rpartition("_")[2]
        key_of = walk.state.variables.get(f"GIT_CONFIG_KEY_{number}")
        key_of = value if name.startswith("GIT_CONFIG_KEY") else key_of
        setting_of = walk.state.variables.get(f"GIT_CONFIG_VALUE_{number}")
        setting_of = value if name.startswith("GIT_CONFIG_VALUE") else setting_of
        if key_of and setting_of:
            pairs.append((key_of, setting_of))
    for key, setting in pairs:
        for inner in git_setting(key, Word(setting, span), "git -c"):
            _quietly(walk, inner)
