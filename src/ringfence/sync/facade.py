"""How a blocking class is made from an async one: each method hands the async one's work to the portal and waits.

The signatures are those of the async methods, by ParamSpec: there is one list of parameters for both faces.
"""

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast

from ringfence.manager.portal import Portal, portal

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")
P = ParamSpec("P")

_END: Final = object()


class Facade(Generic[A]):
    """A blocking object over an async one."""

    def __init__(self, wrapped: A) -> None:
        self._wrapped = wrapped
        self._portal: Portal = portal()

    @property
    def wrapped(self) -> A:
        """The async object; its coroutines belong to the portal's loop."""
        return self._wrapped

    @classmethod
    def over(cls, wrapped: A) -> Self:
        """The blocking face of an object that is there already."""
        made = cls.__new__(cls)
        Facade.__init__(made, wrapped)
        return made

    def __repr__(self) -> str:
        return f"<blocking {self._wrapped!r}>"


class Opened(Facade[A]):
    """One that is used in a `with`, and closed at the latest when the interpreter ends."""

    def __init__(self, wrapped: A) -> None:
        super().__init__(wrapped)
        self._portal.keep(self)

    def __enter__(self) -> Self:
        self._portal.run(cast("Any", self._wrapped).__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        """In a forked child it does nothing: what is open is the parent's."""
        if self._portal.is_ours:
            self._portal.forget(self)
            self._portal.run(self.close_at_exit())

    async def close_at_exit(self) -> None:
        await cast("Any", self._wrapped).__aexit__(None, None, None)


def like(
    init: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the parameters of another."""

    def decorate(own: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        return functools.wraps(init)(own)

    return decorate


def unwrapped(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments in which blocking objects stand for their async ones."""
    return dict(zip(arguments, unwrapped_all(arguments.values()), strict=True))


def unwrapped_all(arguments: Iterable[Any]) -> list[Any]:
    """The same for those without a name."""
    return [given.wrapped if isinstance(given, Facade) else given for given in arguments]


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Facade[A], P], R]:
    """The method, waited for."""

    @functools.wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        work: Coroutine[Any, Any, R] = getattr(self._wrapped, method.__name__)(*args, **kwargs)
        return self._portal.run(work)

    return cast("Callable[Concatenate[Facade[A], P], R]", call)


def giving(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]], face: Callable[[R], S]
) -> Callable[Concatenate[Facade[A], P], S]:
    """The method, waited for, and its result behind a blocking face too."""
    waited_for = blocking(method)

    @functools.wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> S:
        return face(waited_for(self, *args, **kwargs))

    return cast("Callable[Concatenate[Facade[A], P], S]", call)


def inside(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[Facade[A], P], R]:
    """A method that does not wait, called in the loop's thread, since what it looks at is changed there."""

    @functools.wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(self._wrapped, method.__name__)
        return self._portal.call(lambda: bound(*args, **kwargs))

    return cast("Callable[Concatenate[Facade[A], P], R]", call)


def streaming(
    method: Callable[Concatenate[A, P], AsyncIterator[R]],
) -> Callable[Concatenate[Facade[A], P], Iterator[R]]:
    """What an async iterator yields, one by one; whoever stops early ends it."""

    @functools.wraps(method)
    def call(self: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        produced: AsyncGenerator[R, None] = getattr(self._wrapped, method.__name__)(*args, **kwargs)

        async def following() -> Any:
            return await anext(produced, _END)

        try:
            while (item := self._portal.run(following())) is not _END:
                yield item
        finally:
            self._portal.run(produced.aclose())

    return cast("Callable[Concatenate[Facade[A], P], Iterator[R]]", call)
