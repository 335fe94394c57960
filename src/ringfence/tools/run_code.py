"""`RunCodeTool`: an agent's way to run code, through the manager (requirement E8)."""

from ringfence.manager.manager import SandboxManager
from ringfence.values.execution import ExecutionRequest
from ringfence.values.outcome import Result


class RunCodeTool:
    """Runs code in the manager's session; Python keeps its state from call to call.

    run_code = RunCodeTool(SandboxManager("session_123"))
    result = await run_code.execute(code="print('Hello')", language="python", timeout=30)
    """

    name = "run_code"

    def __init__(self, manager: SandboxManager) -> None:
        self._manager = manager

    async def execute(self, code: str, language: str = "python", timeout: float | None = None) -> Result:
        """Run a piece of code; raises as `SandboxManager.execute`."""
        return await self._manager.execute(ExecutionRequest(code=code, language=language, timeout=timeout))
