"""Variables whose value a program runs, reads as options, or expands once more."""

import re
from typing import Final

from ringfence.shell.catalog.base import names as _set

COMMANDS: Final = _set(
    # The value is a command line, or a program.
    "PAGER MANPAGER GIT_PAGER SYSTEMD_PAGER AWS_PAGER BAT_PAGER GH_PAGER DELTA_PAGER PSQL_PAGER GLAB_PAGER"
    " EDITOR VISUAL FCEDIT GIT_EDITOR GIT_SEQUENCE_EDITOR SUDO_EDITOR SYSTEMD_EDITOR KUBE_EDITOR SVN_EDITOR HGEDITOR"
    " GH_EDITOR PSQL_EDITOR TEXEDIT BROWSER GH_BROWSER PROMPT_COMMAND"
    " GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS"
    " RSYNC_RSH CVS_RSH SVN_SSH RSH HGMERGE GIT_MERGE_AUTOEDIT_EDITOR"
    " RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_RUSTC_WRAPPER CCACHE_PREFIX"
    " CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER npm_config_script_shell npm_config_editor"
    " npm_config_git npm_config_viewer FZF_DEFAULT_COMMAND MAILCHECK_COMMAND LESSOPEN LESSCLOSE"
    " MANROFFOPT PERL5DB ANSIBLE_SSH_EXECUTABLE BORG_RSH RESTIC_PASSWORD_COMMAND BORG_PASSCOMMAND"
)
HARMLESS: Final = re.compile(
    r"(?:cat|less|more|true|:|false|echo|none|vim?|nvim|nano|emacs|code|most|bat|delta|w3m|ssh|sccache|ccache|/bin/true)?"
    r"(?: -\S+)*|-"
)
"""Values of those that do nothing but what the variable is for."""
PROMPTS: Final = _set("PS0 PS1 PS2 PS4")
"""Expanded before they are shown, substitutions included."""
FILES: Final = _set("BASH_ENV ENV")
"""Name a file that a shell runs first; the name itself is expanded."""
OPTIONS: Final[dict[str, str]] = {
    # Further arguments of a program.
    "TAR_OPTIONS": "tar",
    "MAKEFLAGS": "make",
    "GNUMAKEFLAGS": "make",
    "LESS": "less",
    "ZIPOPT": "zip",
    "RUBYOPT": "ruby",
    "PERL5OPT": "perl",
    "NODE_OPTIONS": "node",
    "FZF_DEFAULT_OPTS": "fzf",
    "MANOPT": "man",
    "GCC_EXEC_PREFIX": "gcc",
}
EDITOR_SCRIPTS: Final = _set("VIMINIT EXINIT NVIM_INIT")
"""Commands of an editor that are run when it starts."""
