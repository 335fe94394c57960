"""A leftover: a file that an agent made, and that a program outside would run, or obey, later."""

from dataclasses import dataclass
from enum import StrEnum

from ringfence.values.violation import LEFTOVER_RULE, Operation, Severity, Violation, ViolationType


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

    def violation(self, at: float = 0.0) -> Violation:
        return Violation(
            ViolationType.DANGEROUS_PATTERN,
            Severity.HIGH,
            f"{self.path!r} was left behind: {self.why}; run by {self.run_by}",
            f"{LEFTOVER_RULE}{self.kind}",
            "look at it, and keep it by making it yourself",
            operation=Operation.CREATE,
            target=self.path,
            at=at,
        )
