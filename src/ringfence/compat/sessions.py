"""Document 004 (one entry, risk routing, sessions) by its own names.

    manager = SandboxManager(session_id="session_123", security_mode=SecurityMode.STRICT)
    result = await manager.execute(ExecutionRequest(code="print('Hello')", language="python"))

Most of its names are `ringfence`'s own and are only repeated here. A session's boxes work in the directory of
`AgentWorkspace(session_id)`: what one writes, the other reads.
"""

import os

from ringfence.approvals.automatic import AutoApproveConfirmationService
from ringfence.approvals.base import ConfirmationService
from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, PathTraversalError
from ringfence.languages.registry import find as find_language
from ringfence.manager.executor import DockerExecutor, SubprocessExecutor
from ringfence.manager.manager import SandboxManager
from ringfence.manager.options import SandboxOptions
from ringfence.manager.pooling import SandboxPool
from ringfence.policy.risk.assess import assess
from ringfence.policy.risk.route import route
from ringfence.policy.settings import read_settings
from ringfence.pool.plan import PoolConfig
from ringfence.pool.state import SessionState
from ringfence.tools.run_code import RunCodeTool
from ringfence.values.execution import ExecutionRequest
from ringfence.values.outcome import Result as ExecutionResult
from ringfence.values.risk import Assessment, Route, SecurityMode
from ringfence.values.risk import Risk as RiskLevel
from ringfence.values.sandbox_type import SandboxType
from ringfence.workspace.agent import AgentWorkspace

__all__ = [
    "AIOSandboxPool",
    "AgentWorkspace",
    "AutoApproveConfirmationService",
    "ConfirmationService",
    "DockerSimpleSandbox",
    "ExecutionRequest",
    "ExecutionResult",
    "PathTraversalError",
    "PoolConfig",
    "RiskAssessment",
    "RiskLevel",
    "RunCodeTool",
    "SandboxManager",
    "SandboxType",
    "SecurityMode",
    "SessionState",
    "SubprocessExecutor",
    "UnifiedRiskPolicy",
]


@dataclass(frozen=True, slots=True)
class RiskAssessment:
    """What static analysis says of a piece of code: advice, never the wall. A view of `ringfence.Assessment`."""

    assessment: Assessment

    @property
    def level(self) -> RiskLevel:
        return self.assessment.risk

    @property
    def detected_patterns(self) -> list[str]:
        """Each pattern once, the riskiest first."""
        return list(self.assessment.patterns)


class UnifiedRiskPolicy:
    """Assesses code, and says which kind of sandbox it needs."""

    @staticmethod
    def assess(code: str, language: str = "python") -> RiskAssessment:
        """
        Raises:
            InvalidArgument: there is no such language, as when the two arguments are swapped.
        """
        try:
            name = find_language(language).name
        except ValueError as fault:
            shown = language if len(language) <= 40 else f"{language[:40]}..."
            raise InvalidArgument(
                f"{shown!r} is not the name of a language", hint="the code comes first: assess(code, language)"
            ) from fault
        return RiskAssessment(assess(name, code))

    @staticmethod
    def get_required_sandbox(risk: RiskAssessment, mode: SecurityMode = SecurityMode.STRICT) -> SandboxType:
        """The kind of sandbox that a `SandboxManager` in this mode runs it in.

        Only what is SAFE, and only under PERMISSIVE, gets the lightest wall. Where the document forces Docker, ours is
        the native wall, which isolates as much, or Docker where RINGFENCE_TOOL_ENGINE names it.
        """
        if read_settings(os.environ).tool_engine == "docker":
            return SandboxType.DOCKER
        chosen = route(risk.assessment, SecurityMode(mode), light_when_safe=True)
        return SandboxType.SUBPROCESS if chosen is Route.DIRECT else SandboxType.NATIVE


class AIOSandboxPool(SandboxPool):
    """Boxes that keep their state, bound to sessions.

    pool = AIOSandboxPool(config=PoolConfig(max_instances=10, min_instances=2))
    await pool.start()
    sandbox = await pool.acquire("session_123")
    result = await sandbox.execute(request)
    await pool.release("session_123")
    await pool.stop()

    Args:
        config: how many boxes are kept.
        options: what is asked of every box.
    """

    def __init__(self, config: PoolConfig | None = None, *, options: SandboxOptions | None = None) -> None:
        super().__init__(options, size=config)


class DockerSimpleSandbox(DockerExecutor):
    """Each execution in a container of its own: no network, limited memory, the workspace as its volume."""
