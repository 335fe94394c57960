"""`BashTool`: an agent's shell, every command of it in the sandbox (requirement A7)."""

from dataclasses import dataclass

from ringfence.manager.executor import SandboxExecutor
from ringfence.manager.sandbox import StrPath


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command said, and its exit code."""

    stdout: str
    stderr: str
    exit_code: int


class BashTool:
    """An agent's shell: each command in a box of its own.

    What was refused, by which rule, and what would allow it is said at the end of stderr, so that the agent can correct
    itself; an executor that is given says it or not, as it was told to.
    """

    name = "bash"

    def __init__(self, executor: SandboxExecutor | None = None) -> None:
        self._executor = executor or SandboxExecutor(annotate=True)

    async def execute(self, command: str, cwd: StrPath | None = None) -> CommandResult:
        """Run a command; there is no way past the sandbox."""
        done = await self._executor.run(command, cwd)
        return CommandResult(done.stdout, done.stderr, done.exit_code)
