"""Ringfence runs what an agent writes inside walls that hold, and says exactly what happened."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.approvals.automatic import AutoApproveConfirmationService, DevelopmentOnlyWarning
    from ringfence.approvals.base import Answer, Approval, Choice, ConfirmationService, Question
    from ringfence.approvals.deny_all import DenyAllConfirmationService
    from ringfence.approvals.queue import QueueConfirmationService
    from ringfence.approvals.terminal import TerminalConfirmationService
    from ringfence.audit.events import Event, Observer
    from ringfence.audit.metrics import MetricsObserver
    from ringfence.audit.telemetry import OpenTelemetryObserver
    from ringfence.audit.violations import RecordedViolation, ViolationStore
    from ringfence.engines.base import Process
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
        PoolExhausted,
        QuestionNotOpen,
        ResourceLimitExceeded,
        RingfenceError,
        SpawnFailed,
        Timeout,
    )
    from ringfence.manager.assemble import Docker, RingfenceWarning
    from ringfence.manager.blocking import run
    from ringfence.manager.builder import SandboxBuilder, SandboxMode
    from ringfence.manager.executor import DockerExecutor, SandboxExecutor, SandboxResult, SubprocessExecutor
    from ringfence.manager.manager import SandboxManager
    from ringfence.manager.policing import PolicyEngine
    from ringfence.manager.pooling import SandboxPool, SessionInfo
    from ringfence.manager.sandbox import Output, Sandbox
    from ringfence.policy.risk.assess import assess
    from ringfence.policy.risk.route import route
    from ringfence.pool.plan import PoolConfig
    from ringfence.pool.state import PoolState, SessionState
    from ringfence.tools.bash import BashTool, CommandResult
    from ringfence.values.annotate import annotate
    from ringfence.values.execution import ExecutionRequest, ExecutionResult, SandboxType
    from ringfence.values.guarantee import Guarantee, Wall
    from ringfence.values.limits import Limit, Limits
    from ringfence.values.outcome import (
        Ending,
        Exited,
        LimitHit,
        OutputFile,
        Refused,
        Result,
        SandboxAudit,
        Signalled,
        TimedOut,
        Usage,
    )
    from ringfence.values.request import Overflow, Request, Stream
    from ringfence.values.rich import CodeError, Rich
    from ringfence.values.risk import Assessment, Risk, RiskFinding, Route, SecurityMode
    from ringfence.values.verdict import Decision, Reason, Verdict
    from ringfence.values.violation import Operation, Severity, Violation, ViolationKind, ViolationType
    from ringfence.workspace.agent import AgentWorkspace
    from ringfence.workspace.archives.base import Archive, ArchiveLimits
    from ringfence.workspace.snapshots.manifest import Snapshot
    from ringfence.workspace.snapshots.store import SnapshotStore

__all__ = [
    "AgentWorkspace",
    "Answer",
    "Approval",
    "Archive",
    "ArchiveLimits",
    "Assessment",
    "AutoApproveConfirmationService",
    "BashTool",
    "Choice",
    "CodeError",
    "CommandFailed",
    "CommandNotAllowed",
    "CommandResult",
    "ConfirmationService",
    "Decision",
    "DenyAllConfirmationService",
    "DevelopmentOnlyWarning",
    "Docker",
    "DockerExecutor",
    "Ending",
    "Event",
    "ExecutionRequest",
    "ExecutionResult",
    "Exited",
    "Guarantee",
    "InitializationFailed",
    "Internal",
    "InvalidConfig",
    "Limit",
    "LimitHit",
    "Limits",
    "MetricsObserver",
    "NetworkAccessDenied",
    "Observer",
    "OpenTelemetryObserver",
    "Operation",
    "Output",
    "OutputFile",
    "Overflow",
    "PathAccessDenied",
    "PathTraversalError",
    "PermissionDenied",
    "PolicyEngine",
    "PoolConfig",
    "PoolExhausted",
    "PoolState",
    "Process",
    "Question",
    "QuestionNotOpen",
    "QueueConfirmationService",
    "Reason",
    "RecordedViolation",
    "Refused",
    "Request",
    "ResourceLimitExceeded",
    "Result",
    "Rich",
    "RingfenceError",
    "RingfenceWarning",
    "Risk",
    "RiskFinding",
    "Route",
    "Sandbox",
    "SandboxAudit",
    "SandboxBuilder",
    "SandboxExecutor",
    "SandboxManager",
    "SandboxMode",
    "SandboxPool",
    "SandboxResult",
    "SandboxType",
    "SecurityMode",
    "SessionInfo",
    "SessionState",
    "Severity",
    "Signalled",
    "Snapshot",
    "SnapshotStore",
    "SpawnFailed",
    "Stream",
    "SubprocessExecutor",
    "TerminalConfirmationService",
    "TimedOut",
    "Timeout",
    "Usage",
    "Verdict",
    "Violation",
    "ViolationKind",
    "ViolationStore",
    "ViolationType",
    "Wall",
    "annotate",
    "assess",
    "route",
    "run",
]

# Imported when first used: a program that asks for help, or for one part only, does not wait for all.
_HOME = {
    "AgentWorkspace": "ringfence.workspace.agent",
    "Answer": "ringfence.approvals.base",
    "Approval": "ringfence.approvals.base",
    "Archive": "ringfence.workspace.archives.base",
    "ArchiveLimits": "ringfence.workspace.archives.base",
    "Assessment": "ringfence.values.risk",
    "AutoApproveConfirmationService": "ringfence.approvals.automatic",
    "BashTool": "ringfence.tools.bash",
    "Choice": "ringfence.approvals.base",
    "CodeError": "ringfence.values.rich",
    "CommandFailed": "ringfence.errors",
    "CommandNotAllowed": "ringfence.errors",
    "CommandResult": "ringfence.tools.bash",
    "ConfirmationService": "ringfence.approvals.base",
    "Decision": "ringfence.values.verdict",
    "DenyAllConfirmationService": "ringfence.approvals.deny_all",
    "DevelopmentOnlyWarning": "ringfence.approvals.automatic",
    "Docker": "ringfence.manager.assemble",
    "DockerExecutor": "ringfence.manager.executor",
    "Ending": "ringfence.values.outcome",
    "Event": "ringfence.audit.events",
    "ExecutionRequest": "ringfence.values.execution",
    "ExecutionResult": "ringfence.values.execution",
    "Exited": "ringfence.values.outcome",
    "Guarantee": "ringfence.values.guarantee",
    "InitializationFailed": "ringfence.errors",
    "Internal": "ringfence.errors",
    "InvalidConfig": "ringfence.errors",
    "Limit": "ringfence.values.limits",
    "LimitHit": "ringfence.values.outcome",
    "Limits": "ringfence.values.limits",
    "MetricsObserver": "ringfence.audit.metrics",
    "NetworkAccessDenied": "ringfence.errors",
    "Observer": "ringfence.audit.events",
    "OpenTelemetryObserver": "ringfence.audit.telemetry",
    "Operation": "ringfence.values.violation",
    "Output": "ringfence.manager.sandbox",
    "OutputFile": "ringfence.values.outcome",
    "Overflow": "ringfence.values.request",
    "PathAccessDenied": "ringfence.errors",
    "PathTraversalError": "ringfence.errors",
    "PermissionDenied": "ringfence.errors",
    "PolicyEngine": "ringfence.manager.policing",
    "PoolConfig": "ringfence.pool.plan",
    "PoolExhausted": "ringfence.errors",
    "PoolState": "ringfence.pool.state",
    "Process": "ringfence.engines.base",
    "Question": "ringfence.approvals.base",
    "QuestionNotOpen": "ringfence.errors",
    "QueueConfirmationService": "ringfence.approvals.queue",
    "Reason": "ringfence.values.verdict",
    "RecordedViolation": "ringfence.audit.violations",
    "Refused": "ringfence.values.outcome",
    "Request": "ringfence.values.request",
    "ResourceLimitExceeded": "ringfence.errors",
    "Result": "ringfence.values.outcome",
    "Rich": "ringfence.values.rich",
    "RingfenceError": "ringfence.errors",
    "RingfenceWarning": "ringfence.manager.assemble",
    "Risk": "ringfence.values.risk",
    "RiskFinding": "ringfence.values.risk",
    "Route": "ringfence.values.risk",
    "Sandbox": "ringfence.manager.sandbox",
    "SandboxAudit": "ringfence.values.outcome",
    "SandboxBuilder": "ringfence.manager.builder",
    "SandboxExecutor": "ringfence.manager.executor",
    "SandboxManager": "ringfence.manager.manager",
    "SandboxMode": "ringfence.manager.builder",
    "SandboxPool": "ringfence.manager.pooling",
    "SandboxResult": "ringfence.manager.executor",
    "SandboxType": "ringfence.values.execution",
    "SecurityMode": "ringfence.values.risk",
    "SessionInfo": "ringfence.manager.pooling",
    "SessionState": "ringfence.pool.state",
    "Severity": "ringfence.values.violation",
    "Signalled": "ringfence.values.outcome",
    "Snapshot": "ringfence.workspace.snapshots.manifest",
    "SnapshotStore": "ringfence.workspace.snapshots.store",
    "SpawnFailed": "ringfence.errors",
    "Stream": "ringfence.values.request",
    "SubprocessExecutor": "ringfence.manager.executor",
    "TerminalConfirmationService": "ringfence.approvals.terminal",
    "TimedOut": "ringfence.values.outcome",
    "Timeout": "ringfence.errors",
    "Usage": "ringfence.values.outcome",
    "Verdict": "ringfence.values.verdict",
    "Violation": "ringfence.values.violation",
    "ViolationKind": "ringfence.values.violation",
    "ViolationStore": "ringfence.audit.violations",
    "ViolationType": "ringfence.values.violation",
    "Wall": "ringfence.values.guarantee",
    "annotate": "ringfence.values.annotate",
    "assess": "ringfence.policy.risk.assess",
    "route": "ringfence.policy.risk.route",
    "run": "ringfence.manager.blocking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ringfence' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
