"""How many requests a second each tenant makes: a bucket that fills at its rate and holds two seconds' worth."""

from __future__ import annotations

import time
from typing import Final

from ringfence.errors import QuotaExceeded
from ringfence.server.tenants import Tenant

_BURST_SECONDS: Final = 2.0


class Meters:
    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """By tenant: when it was last looked at (monotonic), and what was in it then."""

    def take(self, tenant: Tenant) -> None:
        """
        Raises:
            QuotaExceeded: the bucket is empty.
        """
        rate = tenant.quotas.requests_per_second
        if rate is None:
            return
        now, most = time.monotonic(), max(1.0, rate * _BURST_SECONDS)
        at, left = self._buckets.get(tenant.name, (now, most))
        left = min(most, left + (now - at) * rate)
        if left < 1:
            self._buckets[tenant.name] = (now, left)
            raise QuotaExceeded(
                f"more than {rate:g} requests a second",
                quota="requests_per_second",
                limit=rate,
                hint="ask less often",
            )
        self._buckets[tenant.name] = (now, left - 1)
