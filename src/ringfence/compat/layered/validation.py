"""`validate_command` and its checks: views of `ringfence.shell`, which parses the shell language.

The document looks for substrings; these findings come from the parsed text, so that `echo "rm -rf /"` passes and
`rm -r -f -- //` does not.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Self

from ringfence.compat.layered.ordered import OrderedWords
from ringfence.dataclass import dataclass, replace
from ringfence.shell import CheckContext, analyse, validate
from ringfence.shell.checks.metacharacter import FORBIDDEN_WHEN_STRICT
from ringfence.shell.checks.removal import CRITICAL
from ringfence.values.facts import CheckAnswer, CommandShape, Finding, Strictness

CRITICAL_PATHS: Final = (*CRITICAL, "~", "$HOME")
"""What `check_dangerous_removal` guards: the document's list and more."""
DANGEROUS_METACHARACTERS: Final = tuple(
    (shape.value, why) for shape, why in FORBIDDEN_WHEN_STRICT.items() if shape is not CommandShape.BACKGROUND
)
"""The operators, each with what it does."""


class ValidationStrictness(StrEnum):
    """How strictly the text of a command is checked."""

    Permissive = "permissive"
    Normal = "normal"
    Strict = "strict"

    PERMISSIVE = Permissive
    NORMAL = Normal
    STRICT = Strict


class CheckType(StrEnum):
    """Which check speaks; the last three are ours."""

    Heredoc = "here_document"
    Metacharacter = "metacharacter"
    Variable = "variable"
    Pattern = "pattern"
    Removal = "removal"
    Composite = "composite"
    SensitivePath = "sensitive_path"
    DeniedCommand = "denied_command"
    Parse = "parse"

    HEREDOC = Heredoc
    METACHARACTER = Metacharacter
    VARIABLE = Variable
    PATTERN = Pattern
    REMOVAL = Removal
    COMPOSITE = Composite
    SENSITIVE_PATH = SensitivePath
    DENIED_COMMAND = DeniedCommand
    PARSE = Parse


_ORDER: Final = tuple(CheckType)


class WarningSeverity(OrderedWords):
    """How much a warning matters; ordered."""

    Low = "low"
    Medium = "medium"
    High = "high"
    Critical = "critical"

    LOW = Low
    MEDIUM = Medium
    HIGH = High
    CRITICAL = Critical


@dataclass(frozen=True, slots=True)
class ValidationWarning:
    """What a check doubts without refusing it."""

    severity: WarningSeverity
    message: str

    @classmethod
    def new(cls, severity: WarningSeverity, message: str) -> Self:
        return cls(severity, message)


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """How strict the checks are, and where the command would run."""

    strictness: ValidationStrictness = ValidationStrictness.Normal
    working_dir: str = "/workspace"
    home: str = "/home/agent"
    strict_sensitive_files: bool = True


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Whether a command is allowed, which check says so, why not, and what was only warned of."""

    allowed: bool
    check_type: CheckType
    reason: str = ""
    warnings: tuple[ValidationWarning, ...] = ()

    @classmethod
    def pass_(cls, check_type: CheckType) -> Self:
        """The document's `pass`, which is a word of Python's own."""
        return cls(True, check_type)

    @classmethod
    def pass_with_warnings(cls, check_type: CheckType, warnings: Iterable[ValidationWarning]) -> Self:
        return cls(True, check_type, warnings=tuple(warnings))

    @classmethod
    def block(cls, check_type: CheckType, reason: str) -> Self:
        return cls(False, check_type, reason)

    def clone_with_warnings(self, warnings: Iterable[ValidationWarning]) -> Self:
        return replace(self, warnings=tuple(warnings))


_USUAL: Final = ValidationContext()


def validate_command(command: str, context: ValidationContext = _USUAL) -> ValidationResult:
    """What all checks say: the first refusal, with the warnings before it; else all warnings."""
    findings = sorted(_findings(command, context), key=lambda finding: _ORDER.index(CheckType(finding.check)))
    return _result(CheckType.Composite, findings)


def check_heredoc_safety(command: str) -> ValidationResult:
    """Here-documents that hide what runs."""
    return _one(CheckType.Heredoc, command, _USUAL)


def check_shell_metacharacters(command: str, context: ValidationContext = _USUAL) -> ValidationResult:
    """Operators: a warning each under Normal, a refusal under Strict, nothing under Permissive."""
    return _one(CheckType.Metacharacter, command, context)


def check_dangerous_variables(command: str) -> ValidationResult:
    """Variables that make programs run or load something else."""
    return _one(CheckType.Variable, command, _USUAL)


def check_dangerous_patterns(command: str) -> ValidationResult:
    """Programs and arguments that harm: writing to disks, code from the network, more rights."""
    return _one(CheckType.Pattern, command, _USUAL)


def check_dangerous_removal(command: str) -> ValidationResult:
    """Removing what cannot be replaced."""
    return _one(CheckType.Removal, command, _USUAL)


def _one(check: CheckType, command: str, context: ValidationContext) -> ValidationResult:
    wanted = (check, CheckType.Parse)  # what cannot be read is refused by each of them
    return _result(check, [finding for finding in _findings(command, context) if finding.check in wanted])


def _findings(command: str, context: ValidationContext) -> tuple[Finding, ...]:
    inside = CheckContext(
        workspace=context.working_dir,
        home=context.home,
        strictness=Strictness(context.strictness),
        sensitive=context.strict_sensitive_files,
        warn_operators=True,
    )
    return validate(analyse(command), inside)


def _result(check: CheckType, findings: Iterable[Finding]) -> ValidationResult:
    warnings: list[ValidationWarning] = []
    for finding in findings:
        if finding.answer is CheckAnswer.BLOCK:
            refused = ValidationResult.block(CheckType(finding.check), f"{finding.why} [rule: {finding.rule}]")
            return refused.clone_with_warnings(warnings)
        if finding.answer is CheckAnswer.WARN:
            warnings.append(ValidationWarning(WarningSeverity.Medium, f"{finding.why}: {finding.rule}"))
    return ValidationResult.pass_with_warnings(check, warnings)
