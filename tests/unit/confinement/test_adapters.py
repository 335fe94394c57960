"""Adapters as text: what their command lines say, on every platform."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from ringfence.confinement.adapter import Mount, rewritten, wrapping_audit
from ringfence.confinement.choose import process_adapter, process_adapters
from ringfence.confinement.linux.adapters import firejail, nsjail
from ringfence.confinement.macos import sandbox_exec
from ringfence.confinement.windows import run_in_job
from ringfence.confinement.windows.job_object import JobObjectAdapter
from ringfence.errors import InitializationFailed, InvalidArgument

pytestmark = pytest.mark.req("D4", "D5")
SHADOW = Mount("/var/lib/shadows/1", "/workspace", writable=True)
RUNNER = Mount("/opt/runner", "/__runner__")


def test_paths_are_rewritten_in_every_form_that_runners_take() -> None:
    words = (
        "/opt/runner/wasmtime",
        "run",
        "--dir=/var/lib/shadows/1::/",
        "/var/lib/shadows/1/a.wasm",
        "/opt/runners",
        "x=/opt/runner",
    )

    assert rewritten(words, (SHADOW, RUNNER)) == (
        *("/__runner__/wasmtime", "run", "--dir=/workspace::/", "/workspace/a.wasm", "/opt/runners", "x=/opt/runner"),
    )


def test_the_innermost_mount_decides() -> None:
    inner = Mount("/var/lib/shadows/1/cache", "/cache")

    assert rewritten(("/var/lib/shadows/1/cache/x",), (SHADOW, inner)) == ("/cache/x",)


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a\0b", ""])
def test_a_path_that_could_mean_another_place_is_no_mount(path: str) -> None:
    with pytest.raises(InvalidArgument):
        Mount(path, "/workspace")


def test_nsjail_is_quiet_runs_once_and_has_a_generated_policy() -> None:
    words = nsjail.options("/opt/runner/wasmtime", ("a.wasm",), (SHADOW, RUNNER))

    assert words[:3] == ("--mode", "o", "--quiet")
    assert words[words.index("/var/lib/shadows/1:/workspace") - 1] == "--bindmount"
    assert words[words.index("/opt/runner:/__runner__") - 1] == "--bindmount_ro"
    assert words[-3:] == ("--", "/__runner__/wasmtime", "a.wasm")
    policy = words[words.index("--seccomp_string") + 1]
    assert policy.startswith("POLICY ringfence { ERRNO(1) { mount,") and policy.endswith("DEFAULT ALLOW")


@pytest.mark.parametrize("mount", [Mount("/srv/a:/etc", "/w", writable=True), Mount("/srv/a", "/w:/etc")])
def test_nsjail_is_told_of_no_path_that_it_would_split(mount: Mount) -> None:
    """`/srv/a:/etc:/w` is /srv/a at /etc."""
    assert "/srv/a b:/w" in nsjail.options("x", (), (Mount("/srv/a b", "/w"),)), "any other can be shown"

    with pytest.raises(InvalidArgument, match="cannot be told"):
        nsjail.options("x", (), (mount,))


def test_what_cannot_show_a_directory_elsewhere_says_so() -> None:
    for make in (firejail.options, sandbox_exec.command_line, JobObjectAdapter().command_line):
        with pytest.raises(InvalidArgument, match="/workspace"):
            make("x", (), (SHADOW,))


def test_firejail_lets_nothing_but_the_mounts_be_written() -> None:
    words = firejail.options("x", (), (Mount("/srv/w", "/srv/w", writable=True), Mount("/home/u/r", "/home/u/r")))

    assert "--read-only=/" in words and "--read-write=/srv/w" in words and "--read-write=/home/u/r" not in words
    assert "--blacklist=/root" in words and "--blacklist=/home" not in words, "a mount lies below it"
    assert "--whitelist=/home/u/r" in words and "--whitelist=/srv/w" not in words


@pytest.mark.parametrize("path", ["/srv/*", "/srv/a?", "/srv/[ab]", "/srv/${HOME}"])
def test_firejail_is_told_of_no_path_that_it_would_take_for_several(path: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be told"):
        firejail.options("x", (), (Mount(path, path, writable=True),))


def test_sandbox_exec_gets_its_profile_as_an_argument_and_the_command_after_it() -> None:
    command, words = sandbox_exec.command_line("/bin/ls", ("-l",), (Mount("/w", "/w", writable=True),))

    assert command == "/usr/bin/sandbox-exec" and words[0] == "-p"
    assert words[1].startswith("(version 1)\n(deny default)") and '(subpath "/w")' in words[1]
    assert words[-2:] == ("/bin/ls", "-l")


class Kernel:
    """Records what is asked of Windows."""

    def __init__(self, *, assigns: bool = True, terminates: bool = True) -> None:
        self.calls: list[str] = []
        self._answers = {"AssignProcessToJobObject": assigns, "TerminateJobObject": terminates}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: (self.calls.append(name), self._answers.get(name, 1))[1]


class Process:
    pid, _handle = 77, 5

    def __init__(self, argv: list[str], creationflags: int) -> None:
        self.flags, self.ended = creationflags, False

    def wait(self, seconds: float) -> int:
        return 3

    def poll(self) -> int | None:
        return None

    def kill(self) -> None:
        self.ended = True


def test_a_command_is_in_its_job_before_it_runs_and_the_job_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    monkeypatch.setattr(run_in_job.subprocess, "Popen", lambda *a, **k: started.append(Process(*a, **k)) or started[-1])
    kernel = Kernel()

    assert run_in_job.run(kernel, kernel, 1.0, run_in_job.limits(1 << 20, 8), ["x"]) == 3
    assert started[0].flags == run_in_job.CREATE_SUSPENDED
    order = ["CreateJobObjectW", "SetInformationJobObject", "AssignProcessToJobObject", "NtResumeProcess"]
    assert kernel.calls == [*order, "TerminateJobObject", "CloseHandle"]


def test_a_command_that_cannot_be_put_into_its_job_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    killed: list[list[str]] = []
    monkeypatch.setattr(run_in_job.subprocess, "Popen", lambda *a, **k: started.append(Process(*a, **k)) or started[-1])
    monkeypatch.setattr(run_in_job.subprocess, "run", lambda argv, **k: killed.append(argv))
    kernel = Kernel(assigns=False, terminates=False)

    with pytest.raises(OSError, match="could not be put"):
        run_in_job.run(kernel, kernel, 1.0, run_in_job.limits(1 << 20, 8), ["x"])
    assert "NtResumeProcess" not in kernel.calls and started[0].ended
    assert killed == [["taskkill", "/T", "/F", "/PID", "77"]]


def test_the_limits_are_laid_out_as_windows_has_them() -> None:
    assert ctypes.sizeof(run_in_job.Limits) == 144, "of JOBOBJECT_EXTENDED_LIMIT_INFORMATION, 64 bits"


def test_the_audit_of_a_wrapped_command_shows_no_path_of_the_host() -> None:
    wrapped = ("/usr/bin/bwrap", ("--bind", "/var/lib/shadows/1", "/workspace", "--", "/__runner__/wasmtime"))

    told = wrapping_audit("bwrap", wrapped, (SHADOW, RUNNER))

    assert told["wrapper"] == "bwrap"
    assert told["arguments"] == ["--bind", "<host:/workspace>", "/workspace", "--", "/__runner__/wasmtime"]


def test_an_adapter_of_another_platform_says_so_and_one_that_is_none_names_those_there_are() -> None:
    assert {adapter.name for adapter in process_adapters()} == {
        *("bwrap", "nsjail", "unshare", "landlock", "firejail", "sandbox-exec", "jobobject"),
    }
    with pytest.raises(InitializationFailed, match="for Windows"):
        process_adapter("jobobject")
    with pytest.raises(InitializationFailed, match="no adapter"):
        process_adapter("moat")
