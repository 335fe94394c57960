"""The way from blocking code to the async face: one thread with an event loop of its own, for the whole process.

A blocking call hands a coroutine to that loop and waits. It therefore works where an event loop runs already in the
caller's thread (a notebook), and objects may be used from any thread.

- Ctrl-C in a caller cancels the work inside and waits until it has stopped, so that no command runs on; a second one
  does not wait.
- A child that was forked has no such thread: what was made before the fork says so, and what is made after it gets a
  thread of its own.
- When the interpreter ends, what is still open is closed before the threads end.
"""

import asyncio
import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from ringfence.errors import Busy, Closed

T = TypeVar("T")

_CLOSING_SECONDS: Final = 20.0
"""At the end of the interpreter, for all that is open; then it is left to the launchers, which end with us."""


class _Closable(Protocol):
    def close_at_exit(self) -> Coroutine[Any, Any, object]: ...


class Portal:
    """One thread with an event loop. Get the process's one by `portal()`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._open: weakref.WeakSet[_Closable] = weakref.WeakSet()
        # A daemon, or the interpreter would wait for it before it closes what is open.
        self._thread = threading.Thread(target=self._work, name="ringfence", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the portal's loop, and wait for what comes of it.

        Raises:
            Closed: this process is a fork of the one that the portal belongs to.
            Busy: this is the portal's own thread, which cannot wait for itself.
            BaseException: what the coroutine raised.
        """
        try:
            self._refuse_what_cannot_wait()
        except BaseException:
            work.close()
            raise
        done: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []
        context = contextvars.copy_context()

        def begin() -> None:
            task = self._loop.create_task(work, context=context)
            tasks.append(task)
            task.add_done_callback(lambda ended: _settle(done, ended))

        self._loop.call_soon_threadsafe(begin)
        try:
            return done.result()
        except BaseException:
            if not done.done():  # it was not the work that raised: somebody wants us to stop
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                with suppress(BaseException):
                    done.exception()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The same for a function that has to run in the loop's thread, and does not wait."""

        async def work() -> T:
            return function()

        return self.run(work())

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to this process, and not to the one that this was forked from."""
        return os.getpid() == self._pid

    def keep(self, thing: _Closable) -> None:
        """Have it closed when the interpreter ends, unless it is gone by then."""
        self._open.add(thing)

    def forget(self, thing: _Closable) -> None:
        self._open.discard(thing)

    def close_all(self) -> None:
        """Close what is still open, for the end of the interpreter."""
        if not self.is_ours or not self._thread.is_alive():
            return
        waiting = list(self._open)
        if not waiting:
            return

        async def work() -> None:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await asyncio.gather(*(thing.close_at_exit() for thing in waiting), return_exceptions=True)

        with suppress(TimeoutError):
            self.run(work())

    def _refuse_what_cannot_wait(self) -> None:
        if not self.is_ours:
            raise Closed("it was made before this process was forked", hint="make it anew after the fork")
        if threading.get_ident() == self._thread.ident:
            raise Busy(
                "a blocking call from a callback of the blocking face would wait for itself",
                hint="make it from another thread, or use the async face",
            )

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


def _settle(done: "Future[T]", ended: "asyncio.Task[T]") -> None:
    if ended.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (fault := ended.exception()) is not None:
        done.set_exception(fault)
    else:
        done.set_result(ended.result())


_lock = threading.Lock()
_portal: Portal | None = None
_of_the_parent: list[Portal] = []
"""Kept in a forked child: to throw a loop away would close it, and it is not the child's."""


def portal() -> Portal:
    """The process's portal; made when it is first asked for."""
    global _portal
    with _lock:
        if _portal is None:
            _portal = Portal()
            _at_exit(_portal.close_all)
        return _portal


def _at_exit(close: Callable[[], None]) -> None:
    """Before threads are refused: `atexit` would come too late for closing, which uses some. The interpreter's own
    thread pools register in the same way."""
    threading._register_atexit(close)  # type: ignore[attr-defined]  # since Python 3.9, not in the stubs


def _forget_after_fork() -> None:
    """The child has our memory and none of our threads; the lock may have been taken by one of them."""
    global _lock, _portal
    _lock = threading.Lock()
    if _portal is not None:
        _of_the_parent.append(_portal)
    _portal = None


os.register_at_fork(after_in_child=_forget_after_fork)
