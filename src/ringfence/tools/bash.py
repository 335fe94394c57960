"""`BashTool`: an agent's shell, every command of it in the sandbox (requirement A7)."""

from typing import Final

from ringfence.manager.executor import SandboxExecutor
from ringfence.manager.options import StrPath
from ringfence.manager.policing import PolicyEngine
from ringfence.values.outcome import Result

_CHECKED: Final = "policies: {default: {validation: {strictness: normal}}}"
"""The policy where nobody gives an executor of their own: nothing but that the text of a command is checked."""


class BashTool:
    """An agent's shell: each command in a box of its own, and its text checked before (docs/shell-analysis.md).

    What was refused, by which rule, and what would allow it is said at the end of stderr, so that the agent can correct
    itself; an executor that is given says it or not, as it was told to.
    """

    name = "bash"

    def __init__(self, executor: SandboxExecutor | None = None) -> None:
        self._executor = executor or SandboxExecutor(annotate=True, policy=PolicyEngine.from_text(_CHECKED, "BashTool"))

    async def execute(self, command: str, cwd: StrPath | None = None) -> Result:
        """Run a command; there is no way past the sandbox."""
        return await self._executor.run(command, cwd)
