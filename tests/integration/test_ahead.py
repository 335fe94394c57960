"""A box that was made ahead is taken only if it is what a new one would be now."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ringfence.engines.boxes import helper
from ringfence.engines.native.ahead import NativeAhead
from ringfence.engines.native.drawing import MOST_PATHS
from ringfence.errors import RingfenceError
from ringfence.manager.ahead import Ahead
from ringfence.manager.options import SandboxOptions
from ringfence.manager.parts import SandboxParts
from ringfence.values.request import Request
from tests.support.keepers import wait_for

if TYPE_CHECKING:
    from ringfence.engines.base import MakesAhead

pytestmark = pytest.mark.timeout(120)


class Stage:
    """A project with something to hide and something to protect, a program on PATH, a policy."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.project = top / "project"
        self.tools = top / "tools"
        for directory in (self.project / ".git" / "hooks", self.project / "sub", self.tools):
            directory.mkdir(parents=True)
        (self.project / "sub" / ".env").write_text("old secret")
        (self.project / ".git" / "config").write_text("[core]\n")
        self.policy = top / "policy.yaml"
        self.policy.write_text("policies:\n  default: {max_memory: 1GB}\n")
        self.ahead = Ahead()

    @property
    def options(self) -> SandboxOptions:
        return SandboxOptions(workspace=self.project, policy=self.policy)

    def make(self) -> NativeAhead:
        assert self.ahead.prepare(self.options)
        waits = self.ahead._waits
        assert isinstance(waits, NativeAhead)
        return waits

    def open(self) -> Any:
        """The box that a call would have now."""
        with warnings.catch_warnings(action="ignore"):
            assembly = SandboxParts.of(self.options, once=True).assembly
        opened = self.ahead.run(self.ahead.open(assembly.engine, assembly.grant))
        self.ahead._left.append(opened)  # closed at the end
        return opened

    def read(self, box: Any, command: str) -> str:
        done = self.ahead.run(box.run(Request(command=command)))
        return str(done.stdout)

    def changes_nothing(self) -> None:
        (self.project / "ordinary").write_text("x")
        (self.project / ".git" / "index").write_text("x")

    def hidden_file_appears(self) -> None:
        (self.project / ".env").write_text("new secret")

    def hidden_file_is_replaced(self) -> None:
        """By one that may well get the number of the old one: a cover goes with the name that it lies on."""
        (self.project / "sub" / ".env").unlink()
        (self.project / "sub" / ".env").write_text("new secret")

    def hidden_file_is_put_back(self) -> None:
        """The very same file, which had a second name meanwhile."""
        os.link(self.project / "sub" / ".env", self.top / "second")
        (self.project / "sub" / ".env").unlink()
        os.link(self.top / "second", self.project / "sub" / ".env")

    def directory_of_hidden_file_is_replaced(self) -> None:
        shutil.rmtree(self.project / "sub")
        (self.project / "sub").mkdir()
        (self.project / "sub" / ".env").write_text("new secret")

    def protected_file_is_replaced(self) -> None:
        (self.top / "config").write_text("[core]\n")
        (self.top / "config").rename(self.project / ".git" / "config")

    def protected_directory_appears(self) -> None:
        (self.project / ".vscode").mkdir()

    def workspace_is_another_directory(self) -> None:
        self.project.rename(self.top / "gone")
        shutil.copytree(self.top / "gone", self.project)

    def workspace_is_a_link(self) -> None:
        self.project.rename(self.top / "gone")
        self.project.symlink_to("gone")

    def policy_is_stricter(self) -> None:
        self.policy.write_text("policies:\n  default: {max_memory: 512MB}\n")

    def path_has_another_program(self) -> None:
        os.environ["PATH"] = f"{self.tools}:{os.environ['PATH']}"
        (self.tools / "tool").write_text("#!/bin/sh\n")
        (self.tools / "tool").chmod(0o755)

    def helper_was_replaced(self) -> None:
        os.utime(helper.path())


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    made = Stage(tmp_path)
    yield made
    made.ahead.close()
    made.ahead._runner.close()


CHANGES = [
    Stage.hidden_file_appears,
    Stage.hidden_file_is_replaced,
    Stage.hidden_file_is_put_back,
    Stage.directory_of_hidden_file_is_replaced,
    Stage.protected_file_is_replaced,
    Stage.protected_directory_appears,
    Stage.workspace_is_another_directory,
    Stage.policy_is_stricter,
    Stage.path_has_another_program,
    pytest.param(
        Stage.helper_was_replaced,
        marks=pytest.mark.skipif(not os.access(helper.path(), os.W_OK), reason="the installation is another user's"),
    ),
]


def test_a_box_is_taken_where_nothing_changed_that_it_is_made_from(stage: Stage) -> None:
    made = stage.make()
    stage.changes_nothing()

    assert stage.open() is made.box


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_since_it_was_made_has_a_new_one_made(stage: Stage, change: Callable[[Stage], None]) -> None:
    made = stage.make()
    change(stage)

    assert stage.open() is not made.box


@pytest.mark.parametrize(
    "change", [Stage.hidden_file_appears, Stage.hidden_file_is_replaced, Stage.hidden_file_is_put_back]
)
def test_what_is_hidden_since_stays_hidden(stage: Stage, change: Callable[[Stage], None]) -> None:
    stage.make()
    change(stage)

    assert stage.read(stage.open(), "cat .env sub/.env 2>/dev/null; echo end") == "end\n"


@pytest.mark.parametrize("is_compared", [True, False])
def test_a_call_works_in_the_directory_that_is_there_now(
    stage: Stage, is_compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the comparison it would work in the one that was there when the box was made."""
    if not is_compared:
        monkeypatch.setattr(NativeAhead, "is_like", lambda *_: True)
    stage.make()
    stage.workspace_is_another_directory()
    stage.read(stage.open(), "touch made")

    assert (stage.project / "made").exists() == is_compared
    assert (stage.top / "gone" / "made").exists() == (not is_compared)


def test_a_workspace_that_has_become_a_link_is_refused_as_without(stage: Stage) -> None:
    stage.make()
    stage.workspace_is_a_link()
    with pytest.raises(RingfenceError):
        stage.open()


@pytest.mark.root
def test_a_mount_below_the_workspace_has_a_new_one_made(stage: Stage) -> None:
    made = stage.make()
    place = stage.project / "mounted"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)
    try:
        opened = stage.open()
        stage.ahead.close()
    finally:
        subprocess.run(["umount", str(place)], check=True)

    assert opened is not made.box


@pytest.mark.root
@pytest.mark.parametrize("how", ["noexec", "exec"])
@pytest.mark.parametrize("where", ["project", "top"])
def test_a_mount_that_has_other_flags_now_has_a_new_one_made(stage: Stage, where: str, how: str) -> None:
    """The workspace's own, or one above it: its file system and its number stay what they were."""
    place = stage.project if where == "project" else stage.top
    subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
    try:
        made = stage.make()
        assembly = SandboxParts.of(stage.options, once=True).assembly
        subprocess.run(["mount", "-o", f"remount,{how},bind", str(place)], check=True)
        is_taken = cast("MakesAhead", assembly.engine).can_take(made, assembly.grant)
        subprocess.run(["mount", "-o", "remount,exec,bind", str(place)], check=True)
        stage.ahead.close()
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)

    assert is_taken == (how == "exec")


def itself(pid: int) -> int:
    return pid


def its_parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split()[0])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("which", [itself, its_parent])
def test_a_box_that_was_stopped_or_killed_is_not_taken(
    stage: Stage, which: Callable[[int], int], number: signal.Signals
) -> None:
    made = stage.make()
    first = made.box._inside.control.first_pid
    harmed = which(first)
    os.kill(harmed, number)
    wait_for(lambda: _state(harmed) in "TXZ")
    opened = stage.open()
    said = stage.read(opened, "echo lives")
    with suppress(ProcessLookupError):
        os.kill(harmed, signal.SIGCONT)

    assert opened is not made.box and said == "lives\n"


def test_a_view_with_very_many_covers_is_not_made_ahead(stage: Stage) -> None:
    for number in range(MOST_PATHS):
        directory = stage.project / str(number)
        directory.mkdir()
        (directory / ".env").write_text("x")

    assert not stage.ahead.prepare(stage.options)


def test_preparing_says_nothing_and_the_call_says_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning that was given once is not given again by the same process, unless it was held back."""
    monkeypatch.setenv("RINGFENCE_BWRAP_NETWORK", "1")
    with warnings.catch_warnings(record=True) as early:
        warnings.simplefilter("default")
        stage.make()
    with warnings.catch_warnings(record=True) as late:
        warnings.simplefilter("default")
        SandboxParts.of(stage.options, once=True)

    assert not early and late
