"""Requests that are told when they begin, so that nobody's death hides what was sent, and told again at their end."""

import asyncio
import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ringfence.dataclass import replace
from ringfence.egress.base import RequestHead
from ringfence.policy.reach import Judged
from ringfence.values.network_event import NetworkEvent

_RECORDED_SECONDS: Final = 1.0  # whoever keeps the record may be busy with something else; then it is not waited for
_Key = tuple[str, str, str]
Began = Callable[[NetworkEvent, bool], asyncio.Future[None] | None]
"""Tells of something that begins, and whether it is the first on its connection; what can be waited for until that is
recorded. A connection waits for its record, the requests that follow on it do not."""
_numbers: Final = itertools.count(1)


def next_number() -> int:
    """A number that nothing else has that this proxy tells of."""
    return next(_numbers)


async def until_recorded(record: asyncio.Future[None] | None) -> None:
    if record is not None:
        try:
            await asyncio.wait((record,), timeout=_RECORDED_SECONDS)
        finally:
            record.cancel()


class BegunRequests:
    """Those of one connection that were looked into and are not over.

    Whoever looks into a connection tells what came of a request by its method and path; of several that are alike, the
    first that began is taken to end first.
    """

    __slots__ = ("_began", "_begun", "_is_first")

    def __init__(self, began: Began) -> None:
        self._began = began
        self._is_first = True
        self._begun: dict[_Key, deque[NetworkEvent]] = {}

    def begins(self, connection: NetworkEvent, head: RequestHead, judged: Judged) -> asyncio.Future[None] | None:
        """Tell that a request is about to be sent; what can be waited for until that is recorded.

        Args:
            connection: what is known of the connection that it is on, with a number of its own.
        """
        path, _, query = head.path.partition("?")
        event = replace(
            connection,
            reason=judged.reason,
            rule=judged.rule,
            place=judged.place,
            method=head.method,
            path=path,
            query_sha256=hashlib.sha256(query.encode()).hexdigest() if query else "",
            inspected=True,
        )
        self._begun.setdefault(_key(event), deque()).append(event)
        is_first, self._is_first = self._is_first, False
        return self._began(event, is_first)

    def ends(self, event: NetworkEvent) -> NetworkEvent:
        """What came of a request, with the number that it began with."""
        waiting = self._begun.get(_key(event))
        if not waiting:
            return event
        number = waiting.popleft().number
        if not waiting:
            del self._begun[_key(event)]
        return replace(event, number=number)

    def left(self) -> Iterator[NetworkEvent]:
        """Those whose end nobody told, because they were refused by another record, or given up."""
        begun, self._begun = self._begun, {}
        for waiting in begun.values():
            yield from (replace(each, reason="it was not carried to its end") for each in waiting)


def _key(event: NetworkEvent) -> _Key:
    return event.method, event.path, event.query_sha256
