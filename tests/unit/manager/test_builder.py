"""SandboxBuilder: every method of the requirement, and nothing that a file could not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.manager.builder import SandboxBuilder, SandboxMode
from ringfence.policy.load import load_policy
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.request import Request
from ringfence.values.risk import SecurityMode
from ringfence.values.verdict import Verdict


@pytest.mark.req("C8")
def test_the_documents_example_builds_the_policy_that_it_says(tmp_path: Path) -> None:
    builder = (
        SandboxBuilder()
        .enabled(True)
        .mode(SandboxMode.RESTRICTED)
        .working_dir(tmp_path)
        .allow_read("/srv/data")
        .allow_write("/srv/out")
        .allow_command("ls")
        .block_command("rm -rf")
        .timeout(30)
        .memory_limit(100 * 1024 * 1024)
    )
    engine = builder.policy()
    terms = engine.terms()

    assert [row.path for row in terms.read or ()] == ["/srv/data"]
    assert [row.path for row in terms.write or ()] == ["/srv/out"]
    assert terms.limits(Limits()).wall_seconds == 30
    assert terms.limits(Limits()).memory_bytes == 100 * 1024 * 1024
    assert terms.limits(Limits()).processes == 128  # of the mode
    assert engine.decide(Request(command="ls")).verdict is Verdict.ALLOW
    assert engine.decide(Request(command="rm -r -f x")).deciding.rule == "denied_commands rm -rf"


@pytest.mark.req("C8")
def test_what_is_built_is_a_file() -> None:
    builder = SandboxBuilder().mode("strict").allow_command("git status").deny_path("**/*.pem").require(["network off"])
    builder.cpu_limit("5m").output_limit("1MB").file_size_limit("1GB").process_limit(9).open_files_limit(99)
    builder.allow_network(False).allow_domain("*.example.com").strictness("normal")

    again = load_policy(builder.to_yaml(), "SandboxBuilder")

    assert again.default == builder.policy().policies[0].default


@pytest.mark.req("C8", "E2")
def test_what_is_isolated_is_said_as_a_file_says_it() -> None:
    terms = SandboxBuilder().isolate(["own kernel", "denied_at_open"]).security_mode("permissive").policy().terms()

    assert terms.isolation_requires == {Guarantee.OWN_KERNEL, Guarantee.DENIED_AT_OPEN}
    assert terms.security_mode is SecurityMode.PERMISSIVE
    with pytest.raises(InvalidConfig, match="own_colonel"):
        SandboxBuilder().isolate(["own colonel"]).policy()


def test_what_makes_no_sense_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match="512QB"):
        SandboxBuilder().memory_limit("512QB").policy()
    with pytest.raises(InvalidConfig, match="one of permissive"):
        SandboxBuilder().mode("lax").policy()
    with pytest.raises(InvalidArgument, match="without any wall"):
        SandboxBuilder().enabled(False).build()
