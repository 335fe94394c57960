"""The examples of document 000, name by name, and what its names do: its own classes over ours, in real boxes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from typing import Any

import pytest

import ringfence.compat.shell_sandbox as shell_sandbox
from ringfence import InitializationFailed, InvalidConfig, RingfenceWarning
from ringfence.compat.shell_sandbox import (
    DEFAULT_CONFIG,
    BashParams,
    BashTool,
    CommandResult,
    FilesystemPolicy,
    LinuxSandbox,
    NetworkPolicy,
    PlatformSandbox,
    SandboxConfig,
    SandboxExecutor,
    SandboxPolicy,
    SandboxResult,
    getPlatformSandbox,
    loadSandboxConfig,
    mergeConfig,
)
from tests.integration.stage import SECRET, Place

SANDBOX_JSON = """\
{
  "enabled": true,
  "filesystem": {
    "whitelist": [
      "/home/user/projects",
      "/var/data"
    ],
    "blacklist": [
      "~/.kube",
      "~/.docker"
    ]
  }
}
"""
"""The document's own."""


class TheDocumentsExecutor:
    """`SandboxExecutor` as the document writes it, in Python, over our `loadSandboxConfig` and `getPlatformSandbox`."""

    config: SandboxConfig
    platformSandbox: PlatformSandbox

    def __init__(self) -> None:
        self.config = loadSandboxConfig()
        self.platformSandbox = getPlatformSandbox()
        self.logged: list[tuple[str, dict[str, Any]]] = []

    async def run(self, command: str, cwd: str) -> SandboxResult:
        policy = self.generatePolicy(cwd)
        result = await self.platformSandbox.execute(command, cwd, policy)
        if result.blocked:
            self.logged.append(("Command blocked by sandbox", {"command": command, "reason": result.blockedReason}))
        return result

    def generatePolicy(self, cwd: str) -> SandboxPolicy:
        filesystem = self.config.filesystem
        whitelist = [cwd, *filesystem.whitelist, os.environ.get("TMPDIR") or "/tmp"]
        return SandboxPolicy(
            filesystem=FilesystemPolicy(
                whitelist=self.expandPaths(whitelist), blacklist=self.expandPaths([*filesystem.blacklist])
            ),
            network=NetworkPolicy(allowNetwork=False),
        )

    def expandPaths(self, paths: list[str]) -> list[str]:
        def expanded(path: str) -> str:
            if path.startswith("~"):
                path = path.replace("~", os.environ.get("HOME") or "", 1)
            return re.sub(r"\$(\w+)", lambda found: os.environ.get(found[1]) or "", path)

        return [expanded(path) for path in paths]


class TheDocumentsBashTool:
    """`BashTool` as the document writes it."""

    def __init__(self) -> None:
        self.sandboxExecutor = SandboxExecutor()

    async def execute(self, params: dict[str, str]) -> CommandResult:
        command, cwd = params["command"], params.get("cwd", os.getcwd())
        result = await self.sandboxExecutor.run(command, cwd)
        return CommandResult(stdout=result.stdout, stderr=result.stderr, exitCode=result.exitCode)


@pytest.mark.req("A7", "A8")
def test_the_documents_executor_runs_over_our_parts(place: Place) -> None:
    executor = TheDocumentsExecutor()

    done = asyncio.run(executor.run("echo hello > note; cat note", str(place.workspace)))
    stopped = asyncio.run(executor.run("cat ~/.ssh/key", str(place.workspace)))

    assert (done.stdout, done.exitCode, done.blocked, done.blockedReason) == ("hello\n", 0, False, None)
    assert (place.workspace / "note").read_text() == "hello\n"
    assert SECRET not in stopped.stdout and stopped.exitCode != 0


@pytest.mark.req("A7")
def test_the_documents_tool_and_ours_take_its_parameters(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.workspace)

    theirs = asyncio.run(TheDocumentsBashTool().execute({"command": "pwd; exit 3"}))
    mine = [
        asyncio.run(BashTool().execute(params))
        for params in ({"command": "pwd; exit 3"}, BashParams("pwd; exit 3", cwd=place.workspace))
    ]

    assert [theirs, *mine] == [CommandResult(stdout=f"{place.workspace}\n", stderr="", exitCode=3)] * 3
    assert theirs.exit_code == 3
    with pytest.raises(InvalidConfig, match="comand"):
        asyncio.run(BashTool().execute({"comand": "ls"}))


@pytest.mark.req("A1", "A2")
def test_the_documents_file_is_read_and_merged(place: Place) -> None:
    (place.home / ".synapse").mkdir()
    (place.home / ".synapse" / "sandbox.json").write_text(SANDBOX_JSON)

    config = loadSandboxConfig()

    assert config.enabled
    assert config.filesystem.whitelist == ("/home/user/projects", "/var/data")
    assert config.filesystem.blacklist == (*DEFAULT_CONFIG.filesystem.blacklist, "~/.kube", "~/.docker")
    assert (config.filesystem.allowReadOutside, config.network.allowNetwork) == (False, False)
    assert shell_sandbox.config_path() == str(place.home / ".synapse" / "sandbox.json")
    assert mergeConfig(DEFAULT_CONFIG, json.loads(SANDBOX_JSON)).filesystem == config.filesystem
    with pytest.warns(RingfenceWarning) as said:
        done = asyncio.run(SandboxExecutor().run("echo hi", str(place.workspace)))
    assert done.stdout == "hi\n"
    assert ["/home/user/projects" in str(said[0].message), "/var/data" in str(said[1].message)] == [True, True]


@pytest.mark.req("A1")
def test_a_value_made_by_hand_keeps_the_blacklist_and_the_network_off() -> None:
    config = SandboxConfig(
        enabled=True,
        filesystem=FilesystemPolicy(whitelist=["/srv"], blacklist=[], allowReadOutside=True),
        network=NetworkPolicy(allowNetwork=True),
    )

    assert config.filesystem.blacklist == DEFAULT_CONFIG.filesystem.blacklist
    assert config.network.allowNetwork is config.network.allow_network is False
    assert config.filesystem.allow_read_outside


@pytest.mark.req("A1", "A8")
@pytest.mark.parametrize("by", ["file", "variable"])
def test_switched_off_refuses_and_says_by_what(place: Place, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "variable":
        monkeypatch.setenv("SYNAPSE_SANDBOX_ENABLED", "false")
        source = "SYNAPSE_SANDBOX_ENABLED"
    else:
        source = str(place.top / "sandbox.json")
        (place.top / "sandbox.json").write_text('{"enabled": false}')
        monkeypatch.setenv("SYNAPSE_SANDBOX_CONFIG", source)

    done = asyncio.run(SandboxExecutor().run("touch ran", str(place.workspace)))

    assert (done.exitCode, done.blocked) == (1, True)
    assert done.blockedReason is not None and source in done.blockedReason and "switch it on" in done.blockedReason
    assert "Permission denied" in done.stderr
    assert not (place.workspace / "ran").exists()


@pytest.mark.req("A4")
def test_the_temporary_directory_is_the_boxs_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    host = place.top / "host-tmp"
    host.mkdir()
    (host / "theirs").write_text(SECRET)
    monkeypatch.setenv("TMPDIR", str(host))
    command = f'echo mine > "${{TMPDIR:-/tmp}}/mine" && cat "${{TMPDIR:-/tmp}}/mine"; cat {host}/theirs; ls /tmp'

    done = asyncio.run(TheDocumentsExecutor().run(command, str(place.workspace)))

    assert done.stdout.splitlines()[:2] == ["mine", "mine"]  # said, then listed; the workspace lies there too
    assert SECRET not in done.stderr
    assert [each.name for each in host.iterdir()] == ["theirs"]


@pytest.mark.req("A4", "A8")
def test_a_policy_of_ones_own_grants_and_hides(place: Place) -> None:
    data = place.top / "data"
    data.mkdir()
    (data / "in").write_text("given")
    (data / "token.pem").write_text(SECRET)
    policy = SandboxPolicy(filesystem=FilesystemPolicy(whitelist=[str(data)], blacklist=["**/*.pem"]))

    done = asyncio.run(
        LinuxSandbox().execute(f"cat {data}/in; echo out > {data}/out; cat {data}/token.pem", place.workspace, policy)
    )

    assert done.stdout == "given" and SECRET not in done.stdout
    assert (data / "out").read_text() == "out\n"
    assert done.blocked and done.blockedReason is not None and "**/*.pem" in done.blockedReason
    assert done.blocked_reason == done.blockedReason and done.exit_code == done.exitCode


@pytest.mark.req("A9")
def test_another_platform_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(getPlatformSandbox(), LinuxSandbox)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InitializationFailed, match="sandbox-exec"):
        asyncio.run(getPlatformSandbox().execute("ls", "/", SandboxPolicy(filesystem=FilesystemPolicy())))
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(InitializationFailed, match="Sandbox not supported on platform: win32"):
        getPlatformSandbox()
