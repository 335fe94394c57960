"""A leftover: a file that an agent made, and that a program outside would run, or obey, later."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from ringfence.dataclass import dataclass
from ringfence.values.violation import LEFTOVER_RULE, Operation, Severity, Violation, ViolationType
from ringfence.workspace.leftovers.gitkeys import Setting


class LeftoverKind(StrEnum):
    """What it is, as the rule's name says it."""

    GIT_HOOK = "git-hook"
    GIT_CONFIG = "git-config"
    GIT_REDIRECT = "git-redirect"
    SHELL_STARTUP = "shell-startup"
    DIRECTORY_ENVIRONMENT = "directory-environment"
    EDITOR_SETTINGS = "editor-settings"
    AGENT_SETTINGS = "agent-settings"
    TOOL_SETTINGS = "tool-settings"
    CI_WORKFLOW = "ci-workflow"
    SET_UID = "set-uid"
    FILE_CAPABILITY = "file-capability"


@dataclass(frozen=True, slots=True)
class Leftover:
    """What was left, and who would run it."""

    path: str
    """Relative to the workspace."""
    kind: LeftoverKind
    why: str
    """What makes it one."""
    run_by: str
    """What would run it."""
    is_old: bool = False
    """Whether it may have been there before the run, which changed it, or the directory that it lies in. Then it keeps
    its name and rights: it may be a person's own."""

    def violation(self, at: float = 0.0) -> Violation:
        how = "was changed, or put where it is" if self.is_old else "was left behind"
        return Violation(
            ViolationType.DANGEROUS_PATTERN,
            Severity.HIGH,
            f"{self.path!r} {how}: {self.why}; run by {self.run_by}",
            f"{LEFTOVER_RULE}{self.kind}",
            "compare it with what you had" if self.is_old else "look at it, and keep it by making it yourself",
            operation=Operation.CREATE,
            target=self.path,
            at=at,
        )


class LeftoverFound(Protocol):
    """A file that is judged, wherever it lies: in a workspace, or in a shadow that is to be committed."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its path, by names."""

    @property
    def path(self) -> str: ...

    @property
    def mode(self) -> int: ...

    @property
    def by_git(self) -> Callable[[bytes], tuple[Setting, ...] | None]:
        """Reads settings that are not plain; None for those that it cannot tell."""

    def is_git_directory(self, up: int) -> bool:
        """Whether a directory is one of git's: that of the file, or so many above it."""

    def read(self) -> bytes | None:
        """Its content; None if it is not a plain file, or cannot be read, or is longer than settings are."""

    def has_capabilities(self) -> bool:
        """Whether whoever runs it gets more rights than they have."""


def unsure(why: str, at: float = 0.0) -> Violation:
    """Says that not everything was looked at: what a command left may be among the rest."""
    return Violation(
        ViolationType.DANGEROUS_PATTERN,
        Severity.HIGH,
        f"what was left behind could not all be looked at: {why}",
        f"{LEFTOVER_RULE}scan",
        "before you use git, an editor or an agent there, look through it by hand, or run it again in a shadow",
        at=at,
    )
