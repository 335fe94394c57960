"""How much a box has sent, and whether it may send more: connections, requests a minute, bytes in total."""

import socket
import time
import weakref
from collections import deque
from typing import Final

from ringfence.dataclass import dataclass, field
from ringfence.values.network import Budget, NetworkGrant, NetworkRule

MOST_CONNECTIONS: Final = 256
"""Of one box at the same time, where nobody says: a package manager opens some dozens."""
_DIALLED: Final = 2
"""Connections to servers for one of the box's: HTTP/2 inside may need many of HTTP/1.1 outside."""
_MINUTE: Final = 60.0
_NO_BUDGET: Final = Budget()


@dataclass(slots=True)
class _Spent:
    connections: int = 0
    sent: int = 0
    requests: deque[float] = field(default_factory=deque)

    def may_ask(self, budget: Budget, now: float) -> bool:
        if budget.requests_per_minute is None:
            return True
        while self.requests and self.requests[0] <= now - _MINUTE:
            self.requests.popleft()
        return len(self.requests) < budget.requests_per_minute

    def may_send(self, budget: Budget) -> bool:
        return budget.total_bytes_out is None or self.sent < budget.total_bytes_out


class Meter:
    """Counts for one box, and for each of its rules that has a budget."""

    def __init__(self, network: NetworkGrant) -> None:
        self._network = network
        self._box = _Spent()
        self._rules: dict[NetworkRule, _Spent] = {}
        self._dialled: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        own = network.budget.connections
        self.most_connections = MOST_CONNECTIONS if own is None else own

    @property
    def connections(self) -> int:
        return self._box.connections

    def open_box(self) -> bool:
        """Count a connection of the box; False if it has as many as it may have."""
        if self._box.connections >= self.most_connections:
            return False
        self._box.connections += 1
        return True

    def close_box(self) -> None:
        self._box.connections -= 1

    def may_dial(self) -> bool:
        """Whether one more connection to a server may be made; those that are closed do not count."""
        if len(self._dialled) >= self.most_connections * _DIALLED:
            self._dialled = weakref.WeakSet(each for each in self._dialled if each.fileno() >= 0)
        return len(self._dialled) < self.most_connections * _DIALLED

    def dialled(self, made: socket.socket) -> None:
        self._dialled.add(made)

    def open_rule(self, rule: NetworkRule | None) -> str:
        """Count a connection that a rule allows; why there may be no more of them, else empty."""
        if rule is None or rule.budget.connections is None:
            return ""
        spent = self._of(rule)
        if spent.connections >= rule.budget.connections:
            return f"{rule.budget.connections} connections to {rule.host} are open already"
        spent.connections += 1
        return ""

    def close_rule(self, rule: NetworkRule | None) -> None:
        if rule is not None and rule.budget.connections is not None:
            self._of(rule).connections -= 1

    def request(self, rule: NetworkRule | None) -> str:
        """Count a request; why it may not be made, else empty."""
        now = time.monotonic()
        if not self._box.may_ask(self._network.budget, now):
            return f"more than {self._network.budget.requests_per_minute} requests a minute"
        if not self._box.may_send(self._network.budget):
            return f"the box has sent the {self._network.budget.total_bytes_out} bytes that it may send"
        if rule is not None and rule.budget != _NO_BUDGET:  # else nothing is kept: learning makes a rule of each host
            spent = self._of(rule)
            if not spent.may_ask(rule.budget, now):
                return f"more than {rule.budget.requests_per_minute} requests a minute to {rule.host}"
            if not spent.may_send(rule.budget):
                return f"the {rule.budget.total_bytes_out} bytes that may go to {rule.host} are sent"
            if rule.budget.requests_per_minute is not None:
                spent.requests.append(now)
        if self._network.budget.requests_per_minute is not None:
            self._box.requests.append(now)
        return ""

    def spend(self, rule: NetworkRule | None, sent: int) -> bool:
        """Count bytes that are about to leave; False if that is more than may."""
        self._box.sent += sent
        total = self._network.budget.total_bytes_out
        fits = total is None or self._box.sent <= total
        if rule is not None and rule.budget.total_bytes_out is not None:
            spent = self._of(rule)
            spent.sent += sent
            fits = fits and spent.sent <= rule.budget.total_bytes_out
        return fits

    def _of(self, rule: NetworkRule) -> _Spent:
        spent = self._rules.get(rule)
        if spent is None:
            spent = self._rules[rule] = _Spent()
        return spent
