"""Which names are obeyed by programs outside: data, each row with its reason.

The protected names of `policy/defaults.py` are the beginning: a box cannot make them at the top of the workspace, but
it can below it, and a directory that was made there may be opened, entered or pushed by somebody later. Names that an
agent writes as its daily work and that a person reviews as such (Makefile, package.json, AGENTS.md) are not here.
"""

from collections.abc import Iterator
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.workspace.leftovers.base import LeftoverKind


@dataclass(frozen=True, slots=True)
class LeftoverRow:
    """A name, or a path of names, at any depth unless `at_top_only`; with everything below it."""

    names: tuple[str, ...]
    kind: LeftoverKind
    why: str
    run_by: str
    at_top_only: bool = False


def _row(path: str, kind: LeftoverKind, why: str, run_by: str, *, at_top_only: bool = False) -> LeftoverRow:
    return LeftoverRow(tuple(path.casefold().split("/")), kind, why, run_by, at_top_only)


_SHELL = (LeftoverKind.SHELL_STARTUP, "a shell reads it when it starts, where the directory is somebody's home")
_EDITOR = (LeftoverKind.EDITOR_SETTINGS, "settings and tasks may name programs")
_AGENT = (LeftoverKind.AGENT_SETTINGS, "settings may hold hooks, permissions and tool servers")
_TOOL = LeftoverKind.TOOL_SETTINGS
_DIRECTORY = LeftoverKind.DIRECTORY_ENVIRONMENT
_HOOK = LeftoverKind.GIT_HOOK
_CI = (LeftoverKind.CI_WORKFLOW, "what it says is run when it is pushed, with the project's secrets")

NPMRC: Final = _row(".npmrc", _TOOL, "it may name a shell for scripts, or where packages come from", "npm and pnpm")
TOOLCHAINS: Final = (
    _row("rust-toolchain.toml", _TOOL, "`path` says which compiler and cargo are run", "rustup, by any cargo or rustc"),
    _row("rust-toolchain", _TOOL, "it says which compiler and cargo are run", "rustup, by any cargo or rustc"),
    _row(".tool-versions", _TOOL, "`path:` says which programs are run in place of others", "asdf and mise"),
)
"""Harmless where they name versions only."""
BY_CONTENT: Final = frozenset({".npmrc", *(row.names[-1] for row in TOOLCHAINS)})
"""Names of which the content decides."""

ROWS: Final[tuple[LeftoverRow, ...]] = (
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
    _row(".mise.toml", _DIRECTORY, "hooks and tasks for whoever enters", "mise"),
    _row("mise.toml", _DIRECTORY, "hooks and tasks for whoever enters", "mise"),
    _row(".mise.local.toml", _DIRECTORY, "hooks and tasks for whoever enters", "mise"),
    _row("mise.local.toml", _DIRECTORY, "hooks and tasks for whoever enters", "mise"),
    _row(".mise", _DIRECTORY, "hooks and tasks for whoever enters", "mise"),
    _row(".config/mise", _DIRECTORY, "hooks and tasks for whoever enters", "mise"),
    _row(".direnv", _DIRECTORY, "what direnv keeps, and runs again", "direnv"),
    _row(".windsurf", *_AGENT, "Windsurf, in that directory"),
    _row(".continue", *_AGENT, "Continue, in that directory"),
    _row(".kiro", *_AGENT, "Kiro, in that directory"),
    _row(".opencode", *_AGENT, "opencode, in that directory"),
    _row("opencode.json", *_AGENT, "opencode, in that directory"),
    _row("opencode.jsonc", *_AGENT, "opencode, in that directory"),
    _row(".continuerc.json", *_AGENT, "Continue, in that directory"),
    _row(".qwen", *_AGENT, "Qwen Code, in that directory"),
    _row(".crush.json", *_AGENT, "Crush, in that directory"),
    _row("crush.json", *_AGENT, "Crush, in that directory"),
    _row(".goose", *_AGENT, "Goose, in that directory"),
    _row(".cline", *_AGENT, "Cline, in that directory"),
    _row(".kilocode", *_AGENT, "Kilo Code, in that directory"),
    _row(".junie", *_AGENT, "Junie, in that directory"),
    _row(".trae", *_AGENT, "Trae, in that directory"),
    _row(".factory", *_AGENT, "Factory, in that directory"),
    _row(".augment", *_AGENT, "Augment, in that directory"),
    _row(".copilot", *_AGENT, "Copilot CLI, in that directory"),
    _row(".amazonq", *_AGENT, "Amazon Q, in that directory"),
    _row(".roo", *_AGENT, "Roo Code, in that directory"),
    _row(".amp", *_AGENT, "Amp, in that directory"),
    _row(".grok", *_AGENT, "Grok CLI, in that directory"),
    _row(".openhands", *_AGENT, "OpenHands, in that directory: setup.sh is run first"),
    _row(".zed", *_EDITOR, "Zed, when the directory is opened"),
    _row(".fleet", *_EDITOR, "Fleet, when the directory is opened"),
    _row(".vs", *_EDITOR, "Visual Studio, when the directory is opened"),
    _row(".nova", *_EDITOR, "Nova, when the directory is opened"),
    _row(".theia", *_EDITOR, "Theia, when the directory is opened"),
    _row(".helix", *_EDITOR, "Helix, started in that directory"),
    _row(".devcontainer.json", *_EDITOR, "the editor, on the host, before there is a container"),
    _row(".exrc", *_EDITOR, "vim, started in that directory with `exrc` set"),
    _row(".vimrc", *_EDITOR, "vim, started in that directory with `exrc` set"),
    _row(".nvimrc", *_EDITOR, "Neovim, started in that directory with `exrc` set"),
    _row(".lvimrc", *_EDITOR, "vim with a plug-in for local settings"),
    _row(".nvim.lua", *_EDITOR, "Neovim, started in that directory with `exrc` set"),
    _row(".dir-locals.el", *_EDITOR, "Emacs, for every file of the directory"),
    _row(".gdbinit", _TOOL, "commands for the debugger", "gdb"),
    _row(".lldbinit", _TOOL, "commands for the debugger", "lldb"),
    _row(".pdbrc", _TOOL, "commands for the debugger", "pdb"),
    _row(".rprofile", _TOOL, "a program for every start in that directory", "R"),
    _row(".octaverc", _TOOL, "a program for every start in that directory", "Octave"),
    _row(".ghci", _TOOL, "commands for every start in that directory", "ghci"),
    _row(".irbrc", _TOOL, "a program for every start in that directory", "irb"),
    _row(".pryrc", _TOOL, "a program for every start in that directory", "pry"),
    # version control beside git, and package managers: read by every command in the directory
    _row(".hg/hgrc", _TOOL, "hooks, aliases and extensions", "Mercurial, by any command"),
    _row(".hg/hgrc-not-shared", _TOOL, "hooks, aliases and extensions", "Mercurial, by any command"),
    _row(".hg/sharedpath", _TOOL, "says where the repository lies", "Mercurial, by any command"),
    _row(".jj/repo/config.toml", _TOOL, "names editors, tools and aliases", "Jujutsu, by any command"),
    _row(".jj/workspace-config.toml", _TOOL, "names editors, tools and aliases", "Jujutsu, by any command"),
    _row(".cargo/config", _TOOL, "names compilers, wrappers and runners", "cargo, by any command"),
    _row(".cargo/config.toml", _TOOL, "names compilers, wrappers and runners", "cargo, by any command"),
    NPMRC,
    _row(".yarnrc", _TOOL, "names the program that yarn hands over to", "yarn, by any command"),
    _row(".yarnrc.yml", _TOOL, "names the program that yarn hands over to", "yarn, by any command"),
    _row(".pnpmfile.cjs", _TOOL, "a program for each installation", "pnpm"),
    _row(".mvn/extensions.xml", _TOOL, "code that is loaded first", "Maven, by any command"),
    _row(".mvn/jvm.config", _TOOL, "may load code first", "Maven, by any command"),
    _row(".mvn/maven.config", _TOOL, "options of every command", "Maven, by any command"),
    _row("bunfig.toml", _TOOL, "`preload` names programs that are run first", "bun, by any command"),
    _row(".pnp.cjs", _TOOL, "a program that is loaded before any other", "yarn and node, by any command of yarn's"),
    _row(".bundle/config", _TOOL, "may lead to other gems and programs", "bundler, by any command"),
    *TOOLCHAINS,
    _row(".bazelrc", _TOOL, "options of every command, which may name programs", "bazel, by any command"),
    _row("ansible.cfg", _TOOL, "says where plug-ins are loaded from", "ansible, by any command"),
    _row("latexmkrc", _TOOL, "a program in Perl for every start in that directory", "latexmk"),
    _row(".latexmkrc", _TOOL, "a program in Perl for every start in that directory", "latexmk"),
    _row(".ocamlinit", _TOOL, "a program for every start in that directory", "ocaml and utop"),
    _row(".sl/config", _TOOL, "hooks, aliases and extensions", "Sapling, by any command"),
    _row(".bzr/branch/branch.conf", _TOOL, "settings of the branch, which may name programs", "Bazaar and Breezy"),
    # hooks by other names
    _row(".githooks", _HOOK, "hooks, where core.hooksPath points to in many projects", "git"),
    _row(".git-hooks", _HOOK, "hooks, where core.hooksPath points to in some projects", "git"),
    _row(".pre-commit-config.yaml", _HOOK, "names programs for each commit", "pre-commit"),
    _row("lefthook.yml", _HOOK, "names programs for each commit", "lefthook"),
    _row(".lefthook.yml", _HOOK, "names programs for each commit", "lefthook"),
    _row("lefthook.yaml", _HOOK, "names programs for each commit", "lefthook"),
    _row(".lefthook.yaml", _HOOK, "names programs for each commit", "lefthook"),
    _row("lefthook.toml", _HOOK, "names programs for each commit", "lefthook"),
    _row(".lefthook.toml", _HOOK, "names programs for each commit", "lefthook"),
    _row("lefthook-local.yml", _HOOK, "names programs for each commit", "lefthook"),
    _row(".overcommit.yml", _HOOK, "names programs for each commit", "overcommit"),
    _row(".simple-git-hooks.json", _HOOK, "names programs for each commit", "simple-git-hooks"),
    _row(".simple-git-hooks.cjs", _HOOK, "names programs for each commit", "simple-git-hooks"),
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
    _row(".woodpecker.yaml", *_CI, "Woodpecker"),
    _row(".semaphore", *_CI, "Semaphore"),
    _row(".cirrus.yml", *_CI, "Cirrus CI"),
    _row(".appveyor.yml", *_CI, "AppVeyor"),
    _row("appveyor.yml", *_CI, "AppVeyor"),
    _row(".builds", *_CI, "builds.sr.ht"),
    _row(".build.yml", *_CI, "builds.sr.ht"),
    _row(".teamcity", *_CI, "TeamCity"),
    _row(".tekton", *_CI, "Pipelines as Code"),
    _row(".azure-pipelines", *_CI, "Azure Pipelines"),
    _row("azure-pipelines.yml", *_CI, "Azure Pipelines"),
    _row("bitbucket-pipelines.yml", *_CI, "Bitbucket Pipelines"),
    _row("jenkinsfile", *_CI, "Jenkins"),
)

ENDINGS: Final[tuple[tuple[str, LeftoverRow], ...]] = (
    # names that are known by their end
    (".code-workspace", _row("*", *_EDITOR, "VS Code, when the file is opened")),
    (".sublime-project", _row("*", *_EDITOR, "Sublime Text, when the file is opened")),
)

_BY_FIRST_NAME: Final[dict[str, list[LeftoverRow]]] = {}
for _each in ROWS:
    _BY_FIRST_NAME.setdefault(_each.names[0], []).append(_each)


_NAMES: Final = frozenset(name for row in ROWS for name in row.names)
_ENDINGS: Final = tuple(ending for ending, _ in ENDINGS)


def rows_for(names: tuple[str, ...], *, is_link: bool = False) -> Iterator[tuple[LeftoverRow, int]]:
    """The rows that name a path or a directory above it, and how many names of the path that is.

    A link that has the first names of a row counts as all of it: what lies behind it has other names. Letter case is
    folded, as file systems exist that ignore it.
    """
    for start, name in enumerate(names):
        for row in _BY_FIRST_NAME.get(name.casefold(), ()):
            end = min(start + len(row.names), len(names))
            folded = tuple(part.casefold() for part in names[start:end])
            is_whole = len(folded) == len(row.names) or is_link
            if is_whole and folded == row.names[: len(folded)] and not (row.at_top_only and start):
                yield row, end
    for ending, row in ENDINGS:
        if names and names[-1].casefold().endswith(ending):
            yield row, len(names)


def is_named(name: str) -> bool:
    """Whether a name is in one of the rows: what has it, or lies below it, is looked at first."""
    return name in _NAMES or name.endswith(_ENDINGS)
