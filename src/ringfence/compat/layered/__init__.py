"""Document 002 (checks in layers, and violations) by its own names.

    sandbox = (
        SandboxBuilder.new()
        .mode(SandboxMode.Restricted)
        .working_dir("/tmp/sage/work")
        .allow_command("ls")
        .timeout(timedelta(seconds=30))
        .build()
    )
    done = await sandbox.execute_command("ls", ["-la"], None, None)

The document is written in Rust: its `Result<T, SandboxError>` is here a value that is returned and an error that is
raised, its `Duration` a `timedelta`, `Option` a value or None. Variants of enums have their own spelling
(`SandboxMode.Restricted`) and Python's (`SandboxMode.RESTRICTED`).
"""

from ringfence.compat.layered.builder import SandboxBuilder
from ringfence.compat.layered.config import ResourceLimits, SandboxConfig, SandboxMode
from ringfence.compat.layered.os_sandbox import (
    OsSandboxConfig,
    OsSandboxMode,
    is_os_sandbox_available,
    os_sandbox_name,
)
from ringfence.compat.layered.paths import ALLOWED_TMP_PREFIXES, SENSITIVE_FILES, PathPolicy
from ringfence.compat.layered.sandbox import DefaultSandbox, ResourceUsage, Sandbox, SandboxedExecution
from ringfence.compat.layered.validation import (
    CRITICAL_PATHS,
    DANGEROUS_METACHARACTERS,
    CheckType,
    ValidationContext,
    ValidationResult,
    ValidationStrictness,
    ValidationWarning,
    WarningSeverity,
    check_dangerous_patterns,
    check_dangerous_removal,
    check_dangerous_variables,
    check_heredoc_safety,
    check_shell_metacharacters,
    validate_command,
)
from ringfence.compat.layered.violations import Violation, ViolationSeverity, ViolationStore, ViolationType
from ringfence.errors import (
    CommandNotAllowed,
    InitializationFailed,
    Internal,
    InvalidConfig,
    NetworkAccessDenied,
    PathAccessDenied,
    PermissionDenied,
    ResourceLimitExceeded,
    SpawnFailed,
    Timeout,
)
from ringfence.errors import RingfenceError as SandboxError

__all__ = [
    "ALLOWED_TMP_PREFIXES",
    "CRITICAL_PATHS",
    "DANGEROUS_METACHARACTERS",
    "SENSITIVE_FILES",
    "CheckType",
    "CommandNotAllowed",
    "DefaultSandbox",
    "InitializationFailed",
    "Internal",
    "InvalidConfig",
    "NetworkAccessDenied",
    "OsSandboxConfig",
    "OsSandboxMode",
    "PathAccessDenied",
    "PathPolicy",
    "PermissionDenied",
    "ResourceLimitExceeded",
    "ResourceLimits",
    "ResourceUsage",
    "Sandbox",
    "SandboxBuilder",
    "SandboxConfig",
    "SandboxError",
    "SandboxMode",
    "SandboxedExecution",
    "SpawnFailed",
    "Timeout",
    "ValidationContext",
    "ValidationResult",
    "ValidationStrictness",
    "ValidationWarning",
    "Violation",
    "ViolationSeverity",
    "ViolationStore",
    "ViolationType",
    "WarningSeverity",
    "check_dangerous_patterns",
    "check_dangerous_removal",
    "check_dangerous_variables",
    "check_heredoc_safety",
    "check_shell_metacharacters",
    "is_os_sandbox_available",
    "os_sandbox_name",
    "validate_command",
]
