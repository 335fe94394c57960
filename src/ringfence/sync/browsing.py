"""The blocking face of a session's browser."""

from typing import Any

from ringfence.manager.browser_router import BrowserRouter as AsyncRouter
from ringfence.sync.facade import Opened, blocking, like, streaming, unwrapped


class BrowserRouter(Opened[AsyncRouter]):
    """The browser of a session, for code that does not use asyncio. Arguments as `ringfence.BrowserRouter`."""

    @like(AsyncRouter.__init__)
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(AsyncRouter(*args, **unwrapped(fields)))

    execute = blocking(AsyncRouter.execute)
    frames = streaming(AsyncRouter.frames)
    act = blocking(AsyncRouter.act)

    def close(self) -> None:
        """End the browser; returns when nothing of it is left."""
        self._close()
