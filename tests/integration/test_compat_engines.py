"""The commands and variables of document 003, with real boxes where there are such: its smoke tests."""

from __future__ import annotations

import asyncio
import shutil
import sys

import pytest

from ringfence import InitializationFailed, RingfenceWarning, Sandbox
from ringfence.compat.engines import ENVIRONMENT, PROCESS_SANDBOXES, ProcessSandbox, sandbox_audits
from ringfence.policy.environment import ALIASES
from tests.integration.stage import Place

RO_BINDS = "/usr,/bin,/lib,/lib64,/etc"
"""The document's own."""


@pytest.mark.req("D8", "D3")
def test_the_documents_native_engine_runs_behind_bubblewrap(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "OPENAGENTIC_TOOL_ENGINE": "native",
        "OPENAGENTIC_PROCESS_SANDBOX": "bwrap",
        "OPENAGENTIC_PROCESS_SANDBOX_REQUIRED": "1",
        "OPENAGENTIC_BWRAP_PATH": "bwrap",
        "OPENAGENTIC_BWRAP_NETWORK": "deny",
        "OPENAGENTIC_SANDBOX_INTEGRATION": "1",
    }.items():
        if shutil.which("bwrap") is None and name == "OPENAGENTIC_BWRAP_PATH":
            continue  # ours comes with the package, and needs no path
        monkeypatch.setenv(name, value)

    done = place.run("echo hi")

    assert done.stdout == "hi\n" and done.wall is not None and done.wall.name == "bwrap"
    (audit,) = sandbox_audits(done)
    assert audit.wrapper == "bwrap" and str(place.workspace) not in " ".join(audit.command)


@pytest.mark.req("D8")
def test_the_documents_ro_binds_show_the_system_and_keep_the_boxs_own_etc(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = place.top / "shown"
    shown.mkdir()
    (shown / "file").write_text("seen")
    monkeypatch.setenv("OPENAGENTIC_BWRAP_RO_BINDS", f"{RO_BINDS},{shown}")

    with pytest.warns(RingfenceWarning, match="/etc as a whole is not shown"):
        done = place.run(f"whoami; test -e /etc/shadow || echo no shadow; cat {shown}/file; ls /usr/bin/env")

    assert done.stdout == "agent\nno shadow\nseen/usr/bin/env\n"


@pytest.mark.req("D4", "D8")
@pytest.mark.parametrize("name", PROCESS_SANDBOXES)
def test_every_adapter_is_accepted_and_runs_or_says_why_not(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OPENAGENTIC_PROCESS_SANDBOX", name)
    chosen = ProcessSandbox.from_environment()
    assert chosen == ProcessSandbox(name)
    probe = chosen.probe()

    try:
        done = place.run("echo hello", requires=frozenset())
    except InitializationFailed as refused:
        assert not probe.usable and probe.missing in str(refused) and refused.hint
    else:
        assert probe.usable and done.stdout == "hello\n" and done.wall is not None and done.wall.name == name


@pytest.mark.req("D4")
def test_what_is_for_another_platform_says_so_and_what_is_not_built_says_that() -> None:
    assert sys.platform == "linux"
    assert ProcessSandbox("sandbox-exec").probe().missing == "it is for macOS, and this is Linux"
    assert ProcessSandbox("jobobject").probe().missing == "it is for Windows, and this is Linux"
    nsjail = ProcessSandbox("nsjail").probe().missing
    assert "no adapter does that for nsjail yet" in nsjail
    assert ("is not installed" in nsjail) is (shutil.which("nsjail") is None)


def test_nothing_named_leaves_the_choice_to_us(place: Place) -> None:
    assert ProcessSandbox.from_environment({}) is None
    assert ProcessSandbox.from_environment({"OPENAGENTIC_PROCESS_SANDBOX": "auto"}) is None


@pytest.mark.req("D8")
def test_every_variable_of_the_document_is_read_under_its_name() -> None:
    named = {
        "OPENAGENTIC_PROCESS_SANDBOX",
        "OPENAGENTIC_PROCESS_SANDBOX_REQUIRED",
        "OPENAGENTIC_BWRAP_PATH",
        "OPENAGENTIC_BWRAP_NETWORK",
        "OPENAGENTIC_BWRAP_RO_BINDS",
        "OPENAGENTIC_TOOL_ENGINE",
        "OPENAGENTIC_SANDBOX_INTEGRATION",
    }

    assert ENVIRONMENT.keys() == named
    assert all(ALIASES[ours] == theirs for theirs, ours in ENVIRONMENT.items())


@pytest.mark.req("D8")
def test_required_and_not_available_runs_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAGENTIC_PROCESS_SANDBOX", "nsjail")
    monkeypatch.setenv("OPENAGENTIC_PROCESS_SANDBOX_REQUIRED", "1")

    async def work() -> None:
        async with Sandbox(place.workspace) as sandbox:
            await sandbox.shell("touch ran")

    with pytest.raises(InitializationFailed, match="nsjail is not available"):
        asyncio.run(work())
    assert not (place.workspace / "ran").exists()
