"""Ringfence runs what an agent writes inside walls that hold, and says exactly what happened."""

from ringfence.approvals.automatic import AutoApproveConfirmationService, DevelopmentOnlyWarning
from ringfence.approvals.base import Answer, Approval, Choice, ConfirmationService, Question
from ringfence.approvals.deny_all import DenyAllConfirmationService
from ringfence.approvals.queue import QueueConfirmationService
from ringfence.approvals.terminal import TerminalConfirmationService
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
    QuestionNotOpen,
    ResourceLimitExceeded,
    RingfenceError,
    SpawnFailed,
    Timeout,
)
from ringfence.manager.assemble import RingfenceWarning
from ringfence.manager.blocking import run
from ringfence.manager.builder import SandboxBuilder, SandboxMode
from ringfence.manager.executor import SandboxExecutor, SandboxResult
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.sandbox import Output, Sandbox
from ringfence.policy.risk.assess import assess
from ringfence.policy.risk.route import route
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
from ringfence.values.risk import Assessment, Risk, RiskFinding, Route, SecurityMode
from ringfence.values.verdict import Decision, Reason, Verdict
from ringfence.values.violation import Severity, Violation, ViolationKind

__all__ = [
    "Answer",
    "Approval",
    "Assessment",
    "AutoApproveConfirmationService",
    "BashTool",
    "Choice",
    "CommandFailed",
    "CommandNotAllowed",
    "CommandResult",
    "ConfirmationService",
    "Decision",
    "DenyAllConfirmationService",
    "DevelopmentOnlyWarning",
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
    "PolicyEngine",
    "Question",
    "QuestionNotOpen",
    "QueueConfirmationService",
    "Reason",
    "Refused",
    "Request",
    "ResourceLimitExceeded",
    "Result",
    "RingfenceError",
    "RingfenceWarning",
    "Risk",
    "RiskFinding",
    "Route",
    "Sandbox",
    "SandboxAudit",
    "SandboxBuilder",
    "SandboxExecutor",
    "SandboxMode",
    "SandboxResult",
    "SecurityMode",
    "Severity",
    "Signalled",
    "SpawnFailed",
    "Stream",
    "TerminalConfirmationService",
    "TimedOut",
    "Timeout",
    "Usage",
    "Verdict",
    "Violation",
    "ViolationKind",
    "Wall",
    "assess",
    "route",
    "run",
]
