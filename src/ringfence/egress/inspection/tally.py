"""What came of one request, as it is recorded: the request as the box made it, never with a secret in it."""

import hashlib
import time

from ringfence.egress.base import Flow, Refusal, RequestHead
from ringfence.policy.reach import Judged
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict


class Tally:
    """Counts one request, and tells the flow of it once."""

    def __init__(self, flow: Flow, head: RequestHead) -> None:
        self._flow = flow
        self._head = head
        self._started_at = time.time()
        self._started = time.monotonic()
        self._refusal: Refusal | None = None
        self._failure = ""
        self.judged: Judged | None = None
        self.secrets: tuple[str, ...] = ()
        self.status = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.is_recorded = False
        """Whether somebody else does it."""

    def refused(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def failed(self, reason: str) -> None:
        self._failure = reason

    def record(self) -> None:
        if self.is_recorded:
            return
        self.is_recorded = True
        path, _, query = self._head.path.partition("?")
        judged, refusal = self.judged, self._refusal
        denied = refusal is not None and refusal.status not in (502, 504)  # then it was allowed, and failed
        reason = refusal.reason if refusal else self._failure or (judged.reason if judged else "not judged")
        self._flow.record(
            NetworkEvent(
                box=self._flow.box,
                door=self._flow.door,
                host=self._flow.host.text,
                port=self._flow.port,
                verdict=Verdict.DENY if denied or judged is None else Verdict.ALLOW,
                reason=reason,
                rule=judged.rule if judged else "",
                place=judged.place if judged else "",
                allow_by=judged.allow_by if judged else "",
                method=self._head.method,
                path=path,
                query_sha256=hashlib.sha256(query.encode()).hexdigest() if query else "",
                secrets=self.secrets,
                canary=refusal.canary if refusal else "",
                status=self.status or (refusal.status if refusal else 0),
                bytes_out=self.bytes_out,
                bytes_in=self.bytes_in,
                started_at=self._started_at,
                seconds=time.monotonic() - self._started,
                inspected=True,
            )
        )
