"""Headers by which a server takes a request for another one than the rules have judged."""

import pytest

from ringfence.egress.base import Refusal, RequestHead
from ringfence.egress.flow import Box, BoxFlow
from ringfence.policy.reach import Judged
from ringfence.values.hosts import canonical_host
from ringfence.values.network import Asking, NetworkDoor, NetworkGrant, NetworkRule
from tests.support.egress import World, in_loop

GETS = NetworkRule(host="api.example", methods=("GET",))
CHANGES = NetworkRule(host="api.example", asking=Asking.CHANGES)
BELOW = NetworkRule(host="api.example", paths=("/ok/**",))
OPEN = NetworkRule(host="api.example")


@pytest.mark.parametrize("name", [b"x-http-method-override", b"x-http-method", b"x-method-override"])
@pytest.mark.parametrize("rule", [GETS, CHANGES])
def test_another_method_by_a_header_is_refused(name: bytes, rule: NetworkRule) -> None:
    assert decided(rule, name, b"DELETE") is False
    assert decided(rule, name, b"GET") is True
    assert decided(OPEN, name, b"DELETE") is True


@pytest.mark.parametrize("name", [b"x-original-url", b"x-rewrite-url"])
def test_another_path_by_a_header_is_refused(name: bytes) -> None:
    assert decided(BELOW, name, b"/admin") is False
    assert decided(BELOW, b"x-other", b"/admin") is True
    assert decided(OPEN, name, b"/admin") is True


def decided(rule: NetworkRule, name: bytes, value: bytes) -> bool:
    passed: list[bool] = []

    @in_loop
    async def work() -> None:
        world = World()
        box = Box("box", NetworkGrant(rules=(rule,)), world.outside())
        flow = await box.admit(NetworkDoor.HTTP, canonical_host("api.example"), 80)
        assert isinstance(flow, BoxFlow)
        told = await flow.decide(RequestHead("GET", "/ok/x", ((b"host", b"api.example"), (name, value))))
        assert isinstance(told, Judged) or (isinstance(told, Refusal) and world.events[-1].rule)
        passed.append(isinstance(told, Judged))

    work()
    return passed[0]
