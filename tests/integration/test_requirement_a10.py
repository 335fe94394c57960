"""The nineteen test cases of requirement A10, in the document's order, against the real wall.

Cases 8, 11, 12, 14, 17 and 18 are about text alone and stand in tests/unit/policy/test_a10_cases.py, as does most of
case 13; its reading of a file that is not there is here.
"""

import asyncio
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from ringfence import BashTool, InitializationFailed, NetworkAccessDenied, SandboxExecutor, SandboxOptions, Verdict
from ringfence.manager.tool_network import tool_network
from ringfence.tools.fetch import FetchTool
from ringfence.tools.http import HttpTool
from tests.integration.stage import SECRET, Place
from tests.support.outside_world import replace_outside

pytestmark = pytest.mark.req("A10")


@pytest.fixture
def listener() -> Iterator[int]:
    """A service on the host's loopback that answers everybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    guest, _ = server.accept()
                except TimeoutError:
                    continue
                with guest:
                    guest.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        stop.set()
        thread.join()


# --- file system ------------------------------------------------------------------------------------------------------


@pytest.mark.req("A4")
def test_a10_case_01_whitelisted_directories_are_read_and_written(place: Place) -> None:
    data = place.top / "data"
    data.mkdir()
    (data / "in").write_text("given")
    config = place.top / "sandbox.json"
    config.write_text(json.dumps({"filesystem": {"whitelist": [str(data)]}}))

    done = place.run(f"cat {data}/in; echo made > {data}/out; echo here > out; cat out", config=config)

    assert (done.stdout, done.exit_code, done.blocked) == ("givenhere\n", 0, False)
    assert (data / "out").read_text() == "made\n"
    assert (place.workspace / "out").read_text() == "here\n"


@pytest.mark.req("A3")
def test_a10_case_02_blacklisted_directories_are_refused(place: Place) -> None:
    attempt = "cat ~/.ssh/key; ls ~/.ssh; echo mine > ~/.ssh/authorized_keys; cat ~/.aws/key"

    done = place.run(attempt)

    assert SECRET not in done.stdout
    assert done.stderr.count("No such file or directory") + done.stderr.count("Permission denied") == 4
    assert not (place.home / ".ssh" / "authorized_keys").exists()
    with place.box_closed() as box:
        assert box.check_path(place.home / ".ssh" / "key").verdict is Verdict.DENY

    twin = place.host(attempt)
    assert SECRET in twin.stdout
    assert (place.home / ".ssh" / "authorized_keys").exists()


@pytest.mark.req("A3")
def test_a10_case_02_a_blacklisted_directory_cannot_be_granted(place: Place) -> None:
    for option in (
        {"workspace": place.home / ".ssh"},
        {"read": [place.home / ".ssh"]},
        {"write": [place.home / ".aws"]},
    ):
        with pytest.raises(Exception, match="blacklisted") as caught:
            place.run("ls", **option)
        assert getattr(caught.value, "code", None) == "path_access_denied"


@pytest.mark.req("A3")
def test_a10_case_03_the_blacklist_beats_the_whitelist_inside_a_whitelisted_directory(place: Place) -> None:
    (place.workspace / "app").mkdir()
    names = [".env", "app/.env.local", "app/credentials.json", "secrets.json"]
    for name in names:
        (place.workspace / name).write_text(SECRET)
    (place.workspace / "app" / "plain").write_text("plain\n")
    attempt = f"cat app/plain {' '.join(names)}; for f in {' '.join(names)}; do echo x > $f; rm -f $f; done"

    done = place.run(attempt)

    assert done.stdout == "plain\n"
    assert {(place.workspace / name).read_text() for name in names} == {SECRET}

    assert place.host(attempt).stdout == "plain\n" + SECRET * len(names)


@pytest.mark.req("A4")
def test_a10_case_04_what_is_not_whitelisted_is_neither_read_nor_written(place: Place) -> None:
    outside = place.top / "outside"
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    attempt = f"cat {outside}/file ~/diary; ls {outside}; echo x > {outside}/new; echo x > {outside}/file"

    done = place.run(attempt)

    assert done.stdout == ""
    assert (outside / "file").read_text() == SECRET
    assert not (outside / "new").exists()

    assert place.host(attempt).stdout.startswith(SECRET * 2)
    assert (outside / "new").exists()


@pytest.mark.req("A4")
def test_a10_case_04_allow_read_outside_lets_read_and_not_write(place: Place) -> None:
    outside = place.home / "elsewhere"
    outside.mkdir()
    (outside / "file").write_text("open")
    # pytest's directories lie below /tmp, which stays private even then; so the system's own file is what is read.
    config = place.top / "sandbox.json"
    config.write_text(json.dumps({"filesystem": {"allowReadOutside": True}}))
    there = next(p for p in ("/var/lib/dpkg/status", "/var/lib/apt", "/var/log", "/var") if os.access(p, os.R_OK))

    shut, done = place.run(f"ls -d {there}"), place.run(f"ls -d {there}; touch {there} /var/x", config=config)

    assert shut.stdout == ""
    assert done.stdout == f"{there}\n"
    assert done.exit_code != 0
    assert not os.path.exists("/var/x")


# --- network ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("A5")
def test_a10_case_05_curl_reaches_nothing(place: Place, listener: int) -> None:
    attempt = f"curl -sS --max-time 5 http://127.0.0.1:{listener}/ || wget -q -T5 -O- http://127.0.0.1:{listener}/"

    done = place.run(attempt)

    assert "hello" not in done.stdout
    assert done.exit_code != 0

    if place.host("command -v curl wget").stdout:
        assert place.host(attempt).stdout == "hello"


@pytest.mark.req("A5")
def test_a10_case_05_a_plain_tcp_connection_reaches_nothing(place: Place, listener: int) -> None:
    attempt = f"exec 3<>/dev/tcp/127.0.0.1/{listener} && echo GET / >&3 && cat <&3"

    done = place.run(attempt)

    assert done.stdout == ""
    assert "refused" in done.stderr  # the box has a loopback of its own, on which nobody listens

    assert "hello" in place.host(attempt).stdout


@pytest.mark.req("A5")
def test_a10_case_06_ping_and_its_sockets_are_refused(place: Place) -> None:
    program = (
        "import socket\n"
        "for family, kind, proto in ((2, 3, 1), (2, 2, 1), (10, 3, 58), (17, 3, 3)):\n"
        "    try:\n"
        "        s = socket.socket(family, kind, proto)\n"
        "        s.sendto(b'x' * 8, ('127.0.0.1', 0)) if family == 2 else None\n"
        "        print('sent')\n"
        "    except OSError as fault:\n"
        "        print(fault.errno)\n"
    )

    done = place.run(f'/usr/bin/python3 -c "{program}"; ping -c1 -W2 127.0.0.1 >/dev/null && echo reached')

    refusals = {str(number) for number in (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)}
    assert len(done.stdout.split()) == 4, done.stderr
    assert set(done.stdout.split()) <= refusals

    if os.geteuid() == 0:  # nobody else may have such a socket anyway
        assert "sent" in place.host(f'/usr/bin/python3 -c "{program}"').stdout


@pytest.mark.req("A6")
def test_a10_case_07_an_agent_command_outside_the_sandbox_reaches_what_is_allowed(
    place: Place, listener: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_outside(monkeypatch, place.top, {80: listener})
    url = "http://docs.example.com/"
    options = SandboxOptions(workspace=place.workspace, network=["docs.example.com"])

    async def reach(url: str) -> tuple[str, bytes]:
        async with tool_network(options, os.environ, "docs.example.com") as network:
            page = await FetchTool(network.opener, authority=network.authority).execute(url)
            answer = await HttpTool(network.opener, authority=network.authority).execute("GET", url)
            return page.text.strip(), answer.body

    inside = place.run(f"curl -sS --max-time 5 {url}")

    assert asyncio.run(reach(url)) == ("hello", b"hello")
    assert (inside.stdout, inside.ok) == ("", False), "a command in the sandbox does not"
    with pytest.raises(NetworkAccessDenied, match="no rule allows") as refused:
        asyncio.run(reach("http://other.example.com/"))
    assert "--allow other.example.com:80" in refused.value.hint


# --- platforms --------------------------------------------------------------------------------------------------------


@pytest.mark.req("A9", "D6")
def test_a10_case_09_bubblewrap_gets_its_options_by_a_descriptor_and_the_audit_shows_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "bwrap")

    done = place.run("cat /proc/1/cmdline 2>/dev/null | tr '\\0' ' '; echo; ls -A /")

    assert done.wall is not None and done.wall.name == "bwrap"
    assert done.audit is not None and done.audit.wrapper == "bwrap"
    options = " ".join(done.audit.command)
    for option in (
        "--unshare-user --unshare-ipc --unshare-pid --unshare-uts",  # the network's is the launcher's
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--cap-drop ALL",
        "--clearenv",
    ):
        assert option in options
    assert str(place.top) not in options, "paths of the host are redacted"
    assert "--unshare" not in done.stdout


@pytest.mark.req("A9", "D4")
@pytest.mark.parametrize(
    "settings",
    [{"RINGFENCE_PROCESS_SANDBOX": "unshare"}, {"RINGFENCE_BWRAP_PATH": "/nonexistent/bwrap"}],
    ids=["asked-for", "no-bwrap"],
)
def test_a10_case_10_without_bubblewrap_the_unshare_wall_stands_just_as_high(
    place: Place, listener: int, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    (place.workspace / ".env").write_text(SECRET)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    done = place.run(
        f"cat ~/diary ~/.ssh/key .env; echo x > .vscode; (exec 3<>/dev/tcp/127.0.0.1/{listener}) && echo reached;"
        " unshare -U true && echo nested; ls /proc | grep -c '^[0-9]'; echo fine > out; grep -E "
        "'NoNewPrivs|Seccomp:|CapEff' /proc/self/status"
    )

    assert done.wall is not None and done.wall.name == "unshare"
    assert SECRET not in done.stdout
    assert "reached" not in done.stdout and "nested" not in done.stdout
    lines = done.stdout.split()
    assert int(lines[0]) < 6, "only the box's own processes are seen"
    assert [lines[lines.index(f"{key}:") + 1] for key in ("CapEff", "NoNewPrivs", "Seccomp")] == ["0" * 16, "1", "2"]
    assert (place.workspace / "out").read_text() == "fine\n"
    assert not (place.workspace / ".vscode").exists()


@pytest.mark.req("D8")
def test_a10_case_10_bubblewrap_that_is_asked_for_and_missing_is_an_error_and_nothing_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "bwrap")
    monkeypatch.setenv("RINGFENCE_BWRAP_PATH", "/nonexistent/bwrap")

    with pytest.raises(InitializationFailed, match="/nonexistent/bwrap") as caught:
        place.run("touch ran")

    assert caught.value.hint
    assert place.names() == set()


# --- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.req("A2", "A3")
def test_a10_case_13_without_a_file_the_defaults_hold(place: Place) -> None:
    (place.workspace / ".env").write_text(SECRET)
    assert not (place.home / ".ringfence" / "sandbox.json").exists()

    done = place.run("cat .env; echo x > out")

    assert SECRET not in done.stdout
    assert (place.workspace / "out").exists()


# --- violations -------------------------------------------------------------------------------------------------------


@pytest.mark.req("A8")
def test_a10_case_15_a_forbidden_resource_is_a_permission_error_of_that_command_alone(place: Place) -> None:
    (place.workspace / ".env").write_text(SECRET)

    done = asyncio.run(SandboxExecutor().run("cat .env", place.workspace))

    assert (done.stdout, done.exit_code) == ("", 1)
    assert "Permission denied" in done.stderr


@pytest.mark.req("A7", "A8")
def test_a10_case_16_after_a_violation_the_next_command_runs_as_usual(place: Place) -> None:
    (place.workspace / ".env").write_text(SECRET)
    tool = BashTool()

    async def three() -> list[tuple[str, int]]:
        done = [await tool.execute(line, place.workspace) for line in ("echo one", "cat .env", "echo three")]
        return [(each.stdout, each.exit_code) for each in done]

    assert asyncio.run(three()) == [("one\n", 0), ("", 1), ("three\n", 0)]


@pytest.mark.req("A8")
def test_a10_case_16_after_a_refusal_the_same_box_runs_the_next_command(place: Place) -> None:
    async def two(box):  # type: ignore[no-untyped-def]
        return await box.shell("pwd", cwd="/boot"), await box.shell("cat /root/x ~/diary; echo after")

    refused, after = place.in_box(two)

    assert refused.blocked
    assert after.stdout == "after\n"


# --- other platforms --------------------------------------------------------------------------------------------------


@pytest.mark.req("A9")
@pytest.mark.parametrize("platform", ["win32", "freebsd14", "darwin"])
def test_a10_case_19_another_platform_is_a_clear_error_and_nothing_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)

    with pytest.raises(InitializationFailed) as caught:
        place.run("touch ran")

    monkeypatch.undo()
    assert caught.value.code == "initialization_failed"
    assert "Linux" in caught.value.hint
    assert place.names() == set()
