"""What a caller asks for is at most what its tenant may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.errors import NotFound, NotPermitted, PathAccessDenied
from ringfence.manager.options import NetworkMode
from ringfence.server import wire
from ringfence.server.making import check_workspace, make_options, with_preset
from ringfence.server.tenants import ALL_SCOPES, SOCKET, Caller, Quotas, Tenant


def a_caller(token_id: str = "t1", **fields: object) -> Caller:
    tenant = Tenant(name="t", **fields)  # type: ignore[arg-type]  # by name
    return Caller(tenant=tenant, token_id=token_id, name="agent", scopes=ALL_SCOPES)


def made(caller: Caller, tmp_path: Path, **asked: object) -> object:
    return make_options(wire.SessionCreate(**asked), caller, tmp_path, None, ())  # type: ignore[arg-type]


def test_limits_are_at_most_the_quota_and_less_is_kept(tmp_path: Path) -> None:
    caller = a_caller(quotas=Quotas(memory_bytes=1000, processes=10))
    more = make_options(
        wire.SessionCreate(limits=wire.LimitsSpec(memory_bytes=5000, processes=5)), caller, tmp_path, None, ()
    )

    assert more.limits is not None and (more.limits.memory_bytes, more.limits.processes) == (1000, 5)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"role": "a"}, {"role": "b"}),
        ({}, {"secrets": ["KEY"]}),
        ({"may_ask_network": False}, {"network": ["example.com"]}),
        ({"may_ask_network": False}, {"policy": "policies: {default: {network: {allow: [example.com]}}}"}),
    ],
)
def test_more_than_the_tenant_may_have_is_refused(
    fields: dict[str, object], asked: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(NotPermitted):
        made(a_caller(**fields), tmp_path, **asked)


def test_what_the_tenant_may_have_is_taken(tmp_path: Path) -> None:
    caller = a_caller(
        role="a", roles=frozenset({"b"}), secrets={"KEY": "env:KEY@example.com"}, network=("example.com",)
    )
    options = make_options(wire.SessionCreate(role="b", secrets=["KEY"]), caller, tmp_path, None, ())
    off = make_options(wire.SessionCreate(network="off"), caller, tmp_path, None, ())

    assert options.role == "b" and options.asked_network is not None
    assert list(options.asked_network.secrets) == ["KEY=env:KEY@example.com"] and off.network is NetworkMode.OFF
    assert options.org_id == "t" and options.agent_id == "agent"


def test_a_workspace_is_below_what_the_tenant_may_use_links_included(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "a").mkdir(parents=True)
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    caller = a_caller(workspaces=(str(inside),))

    assert check_workspace(str(inside / "a"), caller) == inside / "a"
    for path in (outside, inside / "link", inside / ".." / "out", Path("/")):
        with pytest.raises(PathAccessDenied):
            check_workspace(str(path), caller)
    assert check_workspace(str(outside), a_caller(SOCKET)) == outside, "the owner of the server may"


def test_a_preset_fills_what_was_not_asked_for() -> None:
    presets = {"p": wire.SessionCreate(env={"A": "1"}, ttl_seconds=5.0)}
    both = with_preset(wire.SessionCreate(preset="p", ttl_seconds=7.0), presets)

    assert (both.env, both.ttl_seconds, both.preset) == ({"A": "1"}, 7.0, "p")
    with pytest.raises(NotFound):
        with_preset(wire.SessionCreate(preset="q"), presets)
