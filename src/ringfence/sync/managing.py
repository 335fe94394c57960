"""The blocking faces of the manager and the pool."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ringfence.approvals.base import ConfirmationService
from ringfence.audit.violations import ViolationStore
from ringfence.manager.manager import SandboxManager as AsyncManager
from ringfence.manager.options import SandboxOptions
from ringfence.manager.pooling import SandboxPool as AsyncPool
from ringfence.manager.sandbox import Sandbox as AsyncSandbox
from ringfence.sync.browsing import BrowserRouter
from ringfence.sync.facade import Opened, blocking, giving, inside, like, unwrapped
from ringfence.sync.sandbox import Sandbox
from ringfence.workspace.agent import AgentWorkspace

_as_sandbox: Callable[[AsyncSandbox], Sandbox] = Sandbox.over


class SandboxPool(Opened[AsyncPool]):
    """Boxes that wait, for code that does not use asyncio. Use it in a `with`. Arguments as `ringfence.SandboxPool`."""

    @like(AsyncPool.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncPool(*args, **unwrapped(fields)))

    start = blocking(AsyncPool.start)
    drain = blocking(AsyncPool.drain)
    wait_ready = blocking(AsyncPool.wait_ready)
    acquire = giving(AsyncPool.acquire, _as_sandbox)
    release = blocking(AsyncPool.release)
    take = giving(AsyncPool.take, _as_sandbox)
    sessions = inside(AsyncPool.sessions)
    state = inside(AsyncPool.state)
    terms = inside(AsyncPool.terms)
    session_state = inside(AsyncPool.session_state)

    def stop(self) -> None:
        """End everything; returns when nothing is left."""
        self._close()

    def discard(self, sandbox: Sandbox) -> None:
        """Throw a sandbox away that `take` gave; another one is made."""
        self._portal.call(lambda: self._wrapped.discard(sandbox.wrapped))

    @contextmanager
    def turn(self, session_id: str) -> Iterator[None]:
        """While in it, nobody else has the session's turn."""
        lock = self._portal.call(lambda: self._wrapped.turn(session_id))
        self._portal.run(lock.acquire())
        try:
            yield
        finally:
            self._portal.call(lock.release)

    @property
    def options(self) -> SandboxOptions:
        """What was asked of it, or of every box."""
        return self._wrapped.options

    @property
    def violations(self) -> ViolationStore:
        """What was refused in its sandboxes."""
        return self._wrapped.violations


class SandboxManager(Opened[AsyncManager]):
    """Runs code and commands, with sessions and a pool, for code that does not use asyncio. Use it in a `with`.

        with SandboxManager(pool_size=5) as manager:
            done = manager.execute_code("python", "print(6 * 7)")

    Arguments and results are those of `ringfence.SandboxManager`; a pool may be one of either face.
    """

    @like(AsyncManager.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncManager(*args, **unwrapped(fields)))

    start = blocking(AsyncManager.start)
    execute = blocking(AsyncManager.execute)
    execute_code = blocking(AsyncManager.execute_code)
    execute_shell = blocking(AsyncManager.execute_shell)
    sessions = inside(AsyncManager.sessions)
    save_snapshot = blocking(AsyncManager.save_snapshot)
    restore_snapshot = blocking(AsyncManager.restore_snapshot)
    fork_session = blocking(AsyncManager.fork_session)

    def browser_of(self, session_id: str | None = None) -> BrowserRouter:
        """The browser of a session; see `ringfence.SandboxManager.browser_of`."""
        return BrowserRouter.over(self._portal.call(lambda: self._wrapped.browser_of(session_id)))

    def cleanup(self, session_id: str | None = None) -> None:
        """End one session; or, without a name, the manager's own and, if the pool is its own, everything."""
        if session_id is None:
            self._close()
        else:
            self._portal.run(self._wrapped.cleanup(session_id))

    @contextmanager
    def files(self, session_id: str | None = None) -> Iterator[AgentWorkspace]:
        """The files of a session, by the paths that its commands see, while nothing of it runs."""
        entered = self._wrapped.files(session_id)
        workspace = self._portal.run(entered.__aenter__())
        try:
            yield workspace
        finally:
            self._portal.run(entered.__aexit__(None, None, None))

    @property
    def pool(self) -> SandboxPool:
        return SandboxPool.over(self._wrapped.pool)

    @property
    def confirmation(self) -> ConfirmationService | None:
        """Who is asked where the policy says so."""
        return self._wrapped.confirmation

    @property
    def session_id(self) -> str | None:
        return self._wrapped.session_id

    @property
    def options(self) -> SandboxOptions:
        """What was asked of it, or of every box."""
        return self._wrapped.options

    @property
    def violations(self) -> ViolationStore:
        """What was refused, in all sessions."""
        return self._wrapped.violations
