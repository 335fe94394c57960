"""What holds when nobody has said anything: the built-in blacklist and the protected paths, each with its reason."""

from typing import Final

BLACKLIST: Final[tuple[str, ...]] = (
    # Requirement A3, in its order. Hidden wherever they lie, also inside a whitelisted directory; no file removes one.
    "~/.ssh",  # private keys, and `config`, whose ProxyCommand is run by the next `ssh`
    "~/.aws",  # access keys, cached session tokens
    "~/.gnupg",  # private keys, and the agent's sockets
    "~/.config/gcloud",  # Google Cloud: refresh tokens, application-default credentials
    "~/.azure",  # Azure: token cache, service principals
    "/etc/passwd",  # names and homes of the people of this machine; the box gets a synthetic one instead
    "/etc/shadow",  # password hashes
    "**/.env",  # by convention the secrets of an application, in the workspace itself
    "**/.envrc",  # the same for direnv, which also *runs* it in the host's shell: hidden, so neither read nor planted
    "**/.env.local",  # the variant that is kept out of version control because it holds the real values
    "**/credentials.json",  # OAuth clients and service accounts, as Google's tools save them
    "**/secrets.json",  # the same habit elsewhere: .NET user secrets, Terraform and home-grown configuration
)

PROTECTED: Final[tuple[str, ...]] = (
    # Relative to each writable directory: may be read, may be neither written nor made. The test for a row is whether a
    # program of the *host* would later run what the file says without asking, when a person only opens the directory,
    # starts a shell or types an everyday git command there. What an agent edits as its daily work (Makefile,
    # package.json, conftest.py, AGENTS.md) fails that test in spirit: a person reviews it as the change that it is.
    # Where nobody makes names from outside, each missing row costs a placeholder and a mount, hence a short list.
    # Files that the blacklist hides (.envrc) are not repeated. A repository that is made anew below the directory has
    # hooks of its own, which only a scan after the run finds.
    #
    # git: any everyday command reads these
    ".git/hooks",  # run by commit, checkout, merge, push, ...
    ".git/config",  # core.fsmonitor, core.hooksPath, core.sshCommand, aliases: run even by `git status`
    ".git/config.worktree",  # the same keys, once extensions.worktreeConfig is on
    ".git/commondir",  # redirects hooks and config to another directory
    ".git/modules",  # submodules' git directories, each with hooks and config; `git status` looks into them
    ".gitmodules",  # where submodules come from; the next `git submodule update` follows it
    ".gitconfig",  # git's own, where the directory serves as somebody's home
    ".husky",  # where core.hooksPath points in many JavaScript projects, hence a second hooks directory
    # shells: where the directory serves as somebody's home (container images, dotfile repositories)
    ".bashrc",
    ".bash_profile",
    ".bash_login",  # read if there is no .bash_profile
    ".profile",
    ".zshenv",  # read by every zsh, scripts included
    ".zprofile",
    ".zshrc",
    ".zlogin",
    # tools
    ".ripgreprc",  # `--pre` names a program that every search runs
    ".devcontainer",  # initializeCommand is run on the host, before there is a container
    # editors: tasks and settings that run programs when the directory is opened
    ".vscode",
    ".idea",
    # agents: hooks, permissions and tool servers that the next agent, outside the sandbox, takes as its owner's will
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".mcp.json",  # tool servers, started as programs by several agents
    ".aider.conf.yml",  # lint-cmd and test-cmd are run after each edit
)

UNMADE: Final[tuple[str, ...]] = (
    # Hidden by the blacklist where they are; where they are not, they must not be made either, because a program of the
    # host would run them. (A new .env is another matter: an agent may well have to write one, and nothing runs it.)
    ".envrc",  # direnv, in the person's own shell
)

SENSITIVE: Final[tuple[str, ...]] = (
    # Requirement C5, in its order: hidden where a policy says `validation.sensitive_files: hide`, wherever they lie.
    # Everyday work in a project needs the first ones, hence a switch and no default.
    "**/.gitconfig",  # names, helpers that hand out passwords
    "**/.git/config",  # addresses with tokens in them; what git runs
    "**/.git/hooks",  # what git runs
    "**/.bashrc",  # exported tokens; what a shell runs, as are the next ones
    "**/.bash_profile",
    "**/.bash_history",  # what somebody typed, passwords included
    "**/.zshrc",
    "**/.zsh_history",
    "**/.profile",
    "**/.zprofile",
    "**/.ssh",  # keys
    "**/.aws",  # access keys
    "**/.docker",  # tokens of registries
    "**/.kube",  # keys of clusters
    "**/.gnupg",  # keys
    "**/.npmrc",  # tokens of registries, as in the next ones
    "**/.pypirc",
    "**/.netrc",
    "**/.cargo/credentials",
    "**/.cargo/credentials.toml",
    "**/.env",  # secrets of a project, as in the next ones
    "**/.env.local",
    "**/.env.production",
    "**/secrets.yaml",
    "**/secrets.json",
    "**/.secrets",
    "**/.vscode/settings.json",  # tokens of extensions
    "**/.idea",  # passwords of data sources
)

_TOP: Final = (
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
)
_BELOW: Final = ("usr/bin", "usr/lib", "usr/local", "var/lib", "var/log", "var/tmp")
_NOT_A_WORKSPACE: Final = frozenset(
    f"/{name}" for name in ("", *_TOP, "sbin", "srv", "sys", "tmp", "usr", "var", *_BELOW)
)
"""Directories that belong to the system or to everybody: writable in a box, they would be the way out."""


def may_be_granted(directory: str, home: str) -> bool:
    """Whether a directory may be made writable in a box: neither the system's, nor a home, nor one that holds it."""
    return directory not in _NOT_A_WORKSPACE and not f"{home}/".startswith(directory.rstrip("/") + "/")
