"""Which names are obeyed by programs outside: data, each row with its reason.

The protected names of `policy/defaults.py` are the beginning: a box cannot make them at the top of the workspace, but
it can below it, and a directory that was made there may be opened, entered or pushed by somebody later. Names that an
agent writes as its daily work and that a person reviews as such (Makefile, package.json, AGENTS.md) are not here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ringfence.workspace.leftovers.base import LeftoverKind


@dataclass(frozen=True, slots=True)
class Row:
    """A name, or a path of names, at any depth unless `at_top_only`; with everything below it."""

    names: tuple[str, ...]
    kind: LeftoverKind
    why: str
    run_by: str
    at_top_only: bool = False


def _row(path: str, kind: LeftoverKind, why: str, run_by: str, *, at_top_only: bool = False) -> Row:
    return Row(tuple(path.casefold().split("/")), kind, why, run_by, at_top_only)


_SHELL = (LeftoverKind.SHELL_STARTUP, "a shell reads it when it starts, where the directory is somebody's home")
_EDITOR = (LeftoverKind.EDITOR_SETTINGS, "settings and tasks may name programs")
_AGENT = (LeftoverKind.AGENT_SETTINGS, "settings may hold hooks, permissions and tool servers")
_CI = (LeftoverKind.CI_WORKFLOW, "what it says is run when it is pushed, with the project's secrets")

ROWS: Final[tuple[Row, ...]] = (
    # the protected names, but for those of git directories, whose content decides (`gitfiles`)
    _row(".gitmodules", LeftoverKind.GIT_REDIRECT, "names where submodules come from", "git submodule update"),
    _row(".gitconfig", LeftoverKind.GIT_CONFIG, "git's own settings, where the directory is a home", "git"),
    _row(".husky", LeftoverKind.GIT_HOOK, "hooks, where core.hooksPath points to in many projects", "git"),
    _row(".bashrc", *_SHELL, "bash", at_top_only=True),
    _row(".bash_profile", *_SHELL, "bash", at_top_only=True),
    _row(".bash_login", *_SHELL, "bash", at_top_only=True),
    _row(".profile", *_SHELL, "sh", at_top_only=True),
    _row(".zshenv", *_SHELL, "zsh", at_top_only=True),
    _row(".zprofile", *_SHELL, "zsh", at_top_only=True),
    _row(".zshrc", *_SHELL, "zsh", at_top_only=True),
    _row(".zlogin", *_SHELL, "zsh", at_top_only=True),
    _row(".ripgreprc", LeftoverKind.TOOL_SETTINGS, "`--pre` names a program that every search runs", "rg"),
    _row(".devcontainer", *_EDITOR, "the editor, on the host, before there is a container"),
    _row(".vscode", *_EDITOR, "VS Code, when the directory is opened"),
    _row(".idea", *_EDITOR, "IntelliJ, when the directory is opened"),
    _row(".claude", *_AGENT, "Claude Code, in that directory"),
    _row(".codex", *_AGENT, "Codex, in that directory"),
    _row(".cursor", *_AGENT, "Cursor, in that directory"),
    _row(".gemini", *_AGENT, "Gemini CLI, in that directory"),
    _row(".mcp.json", *_AGENT, "agents that start the tool servers it names"),
    _row(".aider.conf.yml", *_AGENT, "aider, after each edit"),
    _row(".envrc", LeftoverKind.DIRECTORY_ENVIRONMENT, "a script for whoever enters the directory", "direnv"),
    # the same kinds, of which a box may make any: they are too many to cover one by one
    _row(".mise.toml", LeftoverKind.DIRECTORY_ENVIRONMENT, "hooks and tasks for whoever enters", "mise"),
    _row("mise.toml", LeftoverKind.DIRECTORY_ENVIRONMENT, "hooks and tasks for whoever enters", "mise"),
    _row(".windsurf", *_AGENT, "Windsurf, in that directory"),
    _row(".continue", *_AGENT, "Continue, in that directory"),
    _row(".kiro", *_AGENT, "Kiro, in that directory"),
    _row(".opencode", *_AGENT, "opencode, in that directory"),
    _row("opencode.json", *_AGENT, "opencode, in that directory"),
    _row(".amazonq", *_AGENT, "Amazon Q, in that directory"),
    _row(".roo", *_AGENT, "Roo Code, in that directory"),
    _row(".zed", *_EDITOR, "Zed, when the directory is opened"),
    _row(".fleet", *_EDITOR, "Fleet, when the directory is opened"),
    _row(".exrc", *_EDITOR, "vim, started in that directory with `exrc` set"),
    _row(".nvim.lua", *_EDITOR, "Neovim, started in that directory with `exrc` set"),
    _row(".dir-locals.el", *_EDITOR, "Emacs, for every file of the directory"),
    _row(".gdbinit", LeftoverKind.TOOL_SETTINGS, "commands for the debugger", "gdb"),
    _row(".lldbinit", LeftoverKind.TOOL_SETTINGS, "commands for the debugger", "lldb"),
    _row(".pre-commit-config.yaml", LeftoverKind.GIT_HOOK, "names programs for each commit", "pre-commit"),
    _row("lefthook.yml", LeftoverKind.GIT_HOOK, "names programs for each commit", "lefthook"),
    _row(".lefthook.yml", LeftoverKind.GIT_HOOK, "names programs for each commit", "lefthook"),
    # continuous integration
    _row(".github/workflows", *_CI, "GitHub Actions"),
    _row(".github/actions", *_CI, "GitHub Actions"),
    _row(".forgejo/workflows", *_CI, "Forgejo Actions"),
    _row(".gitea/workflows", *_CI, "Gitea Actions"),
    _row(".gitlab-ci.yml", *_CI, "GitLab CI"),
    _row(".circleci", *_CI, "CircleCI"),
    _row(".buildkite", *_CI, "Buildkite"),
    _row(".travis.yml", *_CI, "Travis CI"),
    _row(".drone.yml", *_CI, "Drone"),
    _row(".woodpecker.yml", *_CI, "Woodpecker"),
    _row(".woodpecker", *_CI, "Woodpecker"),
    _row("azure-pipelines.yml", *_CI, "Azure Pipelines"),
    _row("bitbucket-pipelines.yml", *_CI, "Bitbucket Pipelines"),
    _row("jenkinsfile", *_CI, "Jenkins"),
)

ENDINGS: Final[tuple[tuple[str, Row], ...]] = (
    # names that are known by their end
    (".code-workspace", _row("*", *_EDITOR, "VS Code, when the file is opened")),
    (".sublime-project", _row("*", *_EDITOR, "Sublime Text, when the file is opened")),
)

_BY_FIRST_NAME: Final[dict[str, list[Row]]] = {}
for _each in ROWS:
    _BY_FIRST_NAME.setdefault(_each.names[0], []).append(_each)


def rows_for(names: tuple[str, ...]) -> Iterator[tuple[Row, int]]:
    """The rows that name a path or a directory above it, and how many names of the path that is.

    Letter case is folded, as file systems exist that ignore it.
    """
    for start, name in enumerate(names):
        for row in _BY_FIRST_NAME.get(name.casefold(), ()):
            end = start + len(row.names)
            folded = tuple(part.casefold() for part in names[start:end])
            if folded == row.names and not (row.at_top_only and start):
                yield row, end
    for ending, row in ENDINGS:
        if names and names[-1].casefold().endswith(ending):
            yield row, len(names)
