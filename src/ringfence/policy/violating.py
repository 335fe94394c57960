"""Which type of violation a refusal is: from the rule that refused, by a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.values.violation import USUAL_SEVERITY, Operation, Violation, ViolationType

if TYPE_CHECKING:
    from ringfence.values.verdict import Decision, Reason

_TARGET_SHOWN = 300
"""Characters of the command that a violation keeps."""

_TYPES: Final = (
    # checks, by the name of their module; a longer begin stands before a shorter one
    ("check here_document", ViolationType.HEREDOC_INJECTION),
    ("check metacharacter", ViolationType.SHELL_METACHARACTER_ABUSE),
    ("check variable", ViolationType.VARIABLE_INJECTION),
    ("check pattern", ViolationType.DANGEROUS_PATTERN),
    ("check removal", ViolationType.CRITICAL_PATH_REMOVAL),
    ("check sensitive_path: temporary", ViolationType.DISALLOWED_TEMP_WRITE),
    ("check sensitive_path: home", ViolationType.PATH_ACCESS_DENIED),
    ("check sensitive_path: system", ViolationType.PATH_ACCESS_DENIED),
    ("check sensitive_path: outside", ViolationType.PATH_ACCESS_DENIED),
    ("check sensitive_path", ViolationType.SENSITIVE_FILE_ACCESS),
    # settings
    ("temporary_files", ViolationType.DISALLOWED_TEMP_WRITE),
    ("filesystem", ViolationType.PATH_ACCESS_DENIED),
    ("allowed_paths", ViolationType.PATH_ACCESS_DENIED),
    ("denied_paths", ViolationType.PATH_ACCESS_DENIED),
    ("protected", ViolationType.PATH_ACCESS_DENIED),
    ("network", ViolationType.NETWORK_VIOLATION),
    ("allowed_domains", ViolationType.NETWORK_VIOLATION),
    ("denied_domains", ViolationType.NETWORK_VIOLATION),
)
"""By how the rule's name begins; all others are about the command."""


def type_of(rule: str) -> ViolationType:
    """What a refusal by this rule is about."""
    return next((kind for head, kind in _TYPES if rule.startswith(head)), ViolationType.COMMAND_BLOCKED)


def violation_of(decision: Decision, reason: Reason, why: str, at: float) -> Violation:
    """The violation that goes with a refusal."""
    kind = type_of(reason.rule)
    place = reason.source + (f":{reason.line}" if reason.line is not None else "")
    target = decision.text[reason.span.start : reason.span.end] if reason.span is not None else ""
    operation = Operation.CONNECT if kind is ViolationType.NETWORK_VIOLATION else None
    return Violation(
        kind,
        USUAL_SEVERITY[kind],
        why,
        reason.rule,
        reason.allow_by,
        operation=operation,
        target=target[:_TARGET_SHOWN],
        place=place,
        at=at,
    )
