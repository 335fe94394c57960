"""Writes the text of a policy that starts from a project: valid, commented, and no wider than what was found in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.languages.registry import LANGUAGES

if TYPE_CHECKING:
    from ringfence.manager.project import Project

_RUNNABLE: Final = frozenset(language.name for language in LANGUAGES)
_ALWAYS_HIDDEN: Final = ("*.pem", "*.key")
_SHELLS: Final = ("git", "ls", "cat", "sed", "grep", "find", "mkdir", "cp", "mv", "rm", "echo")
_PROGRAMS: Final = {
    "python": ("python", "python3", "pytest"),
    "javascript": ("node", "npx"),
    "typescript": ("tsc",),
    "rust": ("cargo", "rustc"),
    "go": ("go", "gofmt"),
    "ruby": ("ruby", "rake"),
    "java": ("java", "javac"),
    "c++": ("cmake", "make", "c++"),
}
"""Programs that work on a language, for the list that is proposed."""


def policy_text(project: Project, name: str) -> str:
    """The policy for a project.

    Args:
        name: what the file will be called, for the commands in its comments.
    """
    return "\n".join((*_head(project, name), *_default(project), *_tools(project), *_tail())) + "\n"


def _head(project: Project, name: str) -> tuple[str, ...]:
    found = ", ".join(project.languages) or "none that are known"
    managers = ", ".join(project.managers) or "none"
    tests = project.test_command or "not found"
    command = project.test_command or "make"
    return (
        "# What an agent may do in this project. Written by `ringfence init`; it is yours to change.",
        "#",
        f"#   languages found: {found}; package managers: {managers}; tests: {tests}",
        "#",
        f"#   is it valid?        ringfence policy check {name}",
        f"#   what does it mean?  ringfence policy explain {name}",
        f'#   try a command:      ringfence check --policy {name} -- "{command}"',
        f'#   run it:             ringfence run --policy {name} -- "{command}"',
        "#",
        "# Every key: docs/policy.md, or `ringfence policy schema` for an editor. A policy can only take away: with or",
        "# without it, the workspace is all that can be written, the network is off, and ~/.ssh, **/.env and the like",
        "# are hidden.",
        "",
        "policies:",
    )


def _default(project: Project) -> tuple[str, ...]:
    rows = dict.fromkeys((*_ALWAYS_HIDDEN, *project.secrets))
    asked = dict.fromkeys(("git push", *project.publishing))
    programs = (program for language in project.languages for program in _PROGRAMS.get(language, ()))
    allowed = dict.fromkeys((*programs, *project.managers, *_SHELLS))
    return (
        "  default:",
        "    mode: normal                # permissive, normal, restricted or strict: a start for all that follows",
        "    max_execution_time: 10m     # of one command; a test suite takes longer than most",
        "    max_memory: 2GB",
        "    filesystem:",
        "      deny:                     # hidden, besides the built-in blacklist",
        *(f'        - "**/{row}"' + _because(row, project) for row in rows),
        "    denied_commands:            # whatever the order of options, the wrapper or the nesting",
        "      - command: rm -rf",
        "        why: removes more than one notices",
        "        matches: [rm -r -f build, sudo rm -fr /]",
        "        spares: [rm build/old.o]",
        "      - sudo",
        "      - ssh",
        "    # allowed_commands:         # take the marks away, and nothing else may be run",
        f"    #   [{', '.join(allowed)}]",
        "    approvals:",
        "      timeout: 2m               # nobody answers: that is a no",
        "      ask_for:",
        "        patterns:               # what leaves the project: a person is asked first",
        *(f"          - {command}" for command in asked),
    )


def _because(row: str, project: Project) -> str:
    return "   # there are such files here" if row in project.secrets else ""


def _tools(project: Project) -> tuple[str, ...]:
    languages = [*dict.fromkeys(name for name in (*project.languages, "bash") if name in _RUNNABLE)]
    return (
        "",
        "  tools:",
        "    code_run:                   # code that is handed over as text",
        f"      supported_languages: [{', '.join(languages)}]",
    )


def _tail() -> tuple[str, ...]:
    return (
        "",
        "  # agent_roles:                # `--role reviewer` on the command line, role= in the library",
        "  #   reviewer:",
        "  #     tools: [file_read, search]   # the only tools of this role",
    )
