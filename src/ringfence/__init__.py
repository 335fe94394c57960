"""Ringfence runs what an agent writes inside walls that hold, and says exactly what happened."""

from ringfence.errors import (
    CommandFailed,
    CommandNotAllowed,
    InitializationFailed,
    Internal,
    InvalidConfig,
    NetworkAccessDenied,
    PathAccessDenied,
    PathTraversalError,
    PermissionDenied,
    ResourceLimitExceeded,
    RingfenceError,
    SpawnFailed,
    Timeout,
)
from ringfence.manager.assemble import RingfenceWarning
from ringfence.manager.blocking import run
from ringfence.manager.executor import SandboxExecutor, SandboxResult
from ringfence.manager.sandbox import Output, Sandbox
from ringfence.tools.bash import BashTool, CommandResult
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import (
    Ending,
    Exited,
    LimitHit,
    Refused,
    Result,
    SandboxAudit,
    Signalled,
    TimedOut,
    Usage,
)
from ringfence.values.request import Overflow, Request, Stream
from ringfence.values.verdict import Decision, Reason, Verdict
from ringfence.values.violation import Severity, Violation, ViolationKind

__all__ = [
    "BashTool",
    "CommandFailed",
    "CommandNotAllowed",
    "CommandResult",
    "Decision",
    "Ending",
    "Exited",
    "Guarantee",
    "InitializationFailed",
    "Internal",
    "InvalidConfig",
    "Limit",
    "LimitHit",
    "Limits",
    "NetworkAccessDenied",
    "Output",
    "Overflow",
    "PathAccessDenied",
    "PathTraversalError",
    "PermissionDenied",
    "Reason",
    "Refused",
    "Request",
    "ResourceLimitExceeded",
    "Result",
    "RingfenceError",
    "RingfenceWarning",
    "Sandbox",
    "SandboxAudit",
    "SandboxExecutor",
    "SandboxResult",
    "Severity",
    "Signalled",
    "SpawnFailed",
    "Stream",
    "TimedOut",
    "Timeout",
    "Usage",
    "Verdict",
    "Violation",
    "ViolationKind",
    "Wall",
    "run",
]
