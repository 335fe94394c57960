"""The blocking faces of the executors and of the builder."""

from typing import Any, Unpack

from ringfence.audit.violations import ViolationStore
from ringfence.manager.builder import SandboxBuilder as AsyncBuilder
from ringfence.manager.executor import DockerExecutor as AsyncDockerExecutor
from ringfence.manager.executor import SandboxExecutor as AsyncSandboxExecutor
from ringfence.manager.executor import SubprocessExecutor as AsyncSubprocessExecutor
from ringfence.manager.options import OptionFields
from ringfence.sync.facade import Facade, Opened, blocking, like
from ringfence.sync.sandbox import Sandbox


class SandboxExecutor(Facade[AsyncSandboxExecutor]):
    """Each command in a box of its own, for code that does not use asyncio. Arguments as `ringfence.SandboxExecutor`.

    done = SandboxExecutor(workspace="project").run("pytest -q", timeout="5m")
    """

    @like(AsyncSandboxExecutor.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncSandboxExecutor(*args, **fields))

    run = blocking(AsyncSandboxExecutor.run)


class SubprocessExecutor(Opened[AsyncSubprocessExecutor]):
    """Runs Python that static analysis finds SAFE, behind the lightest wall, for code that does not use asyncio.

    Use it in a `with`. Arguments as `ringfence.SubprocessExecutor`.
    """

    @like(AsyncSubprocessExecutor.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncSubprocessExecutor(*args, **fields))

    start = blocking(AsyncSubprocessExecutor.start)
    execute = blocking(AsyncSubprocessExecutor.execute)

    def close(self) -> None:
        """End everything that runs in it; returns when nothing is left."""
        self._close()

    @property
    def violations(self) -> ViolationStore:
        """What was refused in it."""
        return self._wrapped.violations


class DockerExecutor(Facade[AsyncDockerExecutor]):
    """Each piece of code, and each command, in a container of its own, for code that does not use asyncio.

    Arguments as `ringfence.DockerExecutor`.
    """

    @like(AsyncDockerExecutor.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncDockerExecutor(*args, **fields))

    execute = blocking(AsyncDockerExecutor.execute)


class SandboxBuilder(AsyncBuilder):
    """Puts a blocking sandbox together step by step, as `ringfence.SandboxBuilder` does an async one."""

    def build(self, **fields: Unpack[OptionFields]) -> Sandbox:  # type: ignore[override]  # the other face, by intent
        """The sandbox; `fields` are further options. Raises as that of `ringfence.SandboxBuilder`."""
        return Sandbox(self.options(**fields))
