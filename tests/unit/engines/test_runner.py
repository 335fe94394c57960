"""The helper in Python and the one in C are the same: their verbs, their messages, their numbers. And which is used."""

import os
import re
import sys
from pathlib import Path

import pytest

from ringfence.engines.boxes import helper, protocol
from ringfence.engines.boxes.runner import init, kernel, launch, words
from ringfence.errors import InitializationFailed, InvalidConfig
from tests.support.fakes import a_view

NATIVE = Path(__file__).parents[3] / "native"


def compared_with(file: str, function: str) -> set[str]:
    """The words that a function in C compares a verb with."""
    text = (NATIVE / file).read_text()
    begin = re.search(rf"^[^\n;/*]*\b{function}\([^;{{]*\) {{$", text, re.MULTILINE)
    assert begin is not None, function
    body = text[begin.end() : text.index("\n}\n", begin.end())]
    return set(re.findall(r'strcmp\([\w.>-]*verb, "(\w+)"\)', body))


def numbers_in(file: str) -> dict[str, int]:
    """What a file in C defines: macros and members of enums that are plain numbers or products of them."""
    text = (NATIVE / file).read_text()
    found = re.findall(r"^#define (\w+) \(?([0-9xA-Fu* ]+)\)?", text, re.MULTILINE)
    found += re.findall(r"^    (\w+) = (\d+),", text, re.MULTILINE)
    out = {}
    for name, value in found:
        product = 1
        for factor in value.split("*"):
            product *= int(factor.strip().rstrip("u"), 0)
        out[name] = product
    return out


def test_a_plan_s_verbs_are_those_of_the_helper_in_c() -> None:
    only_in_c = {"attach", "built"}  # for containers, whose engine needs the helper in C
    assert {verb.decode() for verb in launch.STEPS} == compared_with("launch.c", "prepare") - only_in_c


def test_a_guardian_s_duties_are_those_of_the_helper_in_c() -> None:
    only_in_c = {"detach", "remove"}  # for containers
    assert {verb.decode() for verb in launch.DUTIES} | {"wall"} == compared_with("launch.c", "next_duty") - only_in_c


def test_a_configuration_s_verbs_are_those_of_the_helper_in_c() -> None:
    # the runner cannot look at calls while they happen, is in no container, and keeps no shadow in memory
    only_in_c = {"notify", "complain", "hand"}
    assert {verb.decode() for verb in init.CONFIGURATION} == compared_with("init.c", "configure") - only_in_c


def test_messages_are_those_of_the_helper_in_c_and_of_the_manager() -> None:
    cases = set(re.findall(r"^    case (\w+):", (NATIVE / "init.c").read_text(), re.MULTILINE))

    assert {protocol.Kind(number).name for number in init.MESSAGES} == cases
    assert {kind.name: getattr(words, kind.name) for kind in protocol.Kind} == {
        kind.name: int(kind) for kind in protocol.Kind
    }


@pytest.mark.parametrize(
    ("file", "module"),
    [("box.h", words), ("init.c", init), ("launch.c", launch), ("launch.c", kernel)],
)
def test_numbers_are_those_of_the_helper_in_c(file: str, module: object) -> None:
    theirs = numbers_in(file)
    shared = {name for name in theirs if isinstance(getattr(module, name, None), int)}

    assert {name: getattr(module, name) for name in shared} == {name: theirs[name] for name in shared}
    assert len(shared) >= 3


def test_no_number_of_the_protocol_is_missing() -> None:
    assert all(hasattr(words, name) for name in numbers_in("box.h"))
    limits = {"FILTER_MAX", "EXTRA_FD", "FDS_MAX", "JOBS_MAX", "STRAYS_MAX", "PATIENCE_MS"}
    assert all(hasattr(init, name) and name in numbers_in("init.c") for name in limits)


def test_the_runner_imports_nothing_of_ours() -> None:
    """It runs where our package cannot be seen."""
    for file in Path(launch.__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(import|from) +(ringfence|tests)", file.read_text(), re.MULTILINE), file


# --- which one is used, and what runs it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "built", "is_python"),
    [("", True, False), ("", False, True), ("c", True, False), ("python", True, True), ("python", False, True)],
)
def test_the_helper_in_c_is_used_if_it_is_there_and_nobody_asks_for_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str, built: bool, is_python: bool
) -> None:
    monkeypatch.setenv(helper.VARIABLE, asked)
    monkeypatch.setattr(helper, "_NATIVE", "/bin/sh" if built else str(tmp_path / "nothing"))

    assert helper.is_python() is is_python
    assert bool(helper.choose().interpreter) is is_python


def test_a_helper_that_is_asked_for_and_is_not_there_is_no_other_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(helper, "_NATIVE", str(tmp_path / "nothing"))
    monkeypatch.setenv(helper.VARIABLE, "c")
    with pytest.raises(InitializationFailed, match="missing"):
        helper.choose()
    monkeypatch.setenv(helper.VARIABLE, "rust")
    with pytest.raises(InvalidConfig, match=helper.VARIABLE):
        helper.choose()


def test_an_interpreter_in_a_workspace_or_by_a_link_from_there_is_never_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(helper.VARIABLE, "python")
    monkeypatch.setattr(helper, "_SYSTEM_PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    own, system = os.path.realpath("/usr/bin/python3"), ("/usr",)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_bytes(b"\x7fELF")
    monkeypatch.setattr(helper, "_runs", lambda program: True)
    view = a_view(system=system, writable=(str(tmp_path),))
    with pytest.raises(InitializationFailed):
        helper.choose(view, f"{tmp_path}/bin")

    os.unlink(tmp_path / "bin" / "python3")
    os.symlink(own, tmp_path / "bin" / "python3")
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(InitializationFailed):
        helper.choose(view, f"{tmp_path}/bin")

    assert helper.choose(view, "/usr/bin").interpreter[0] == own


def test_an_interpreter_that_the_box_does_not_see_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helper.VARIABLE, "python")

    with pytest.raises(InitializationFailed, match="can see"):
        helper.choose(a_view(system=("/nix/store",)), "/usr/bin")

    assert helper.choose(a_view(), "/usr/bin").interpreter


def test_what_is_no_interpreter_is_not_taken_for_one(tmp_path: Path) -> None:
    script = tmp_path / "python3"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)

    assert not helper._runs(str(script))
    assert not helper._runs("/bin/true-that-is-not-there")
    assert helper._runs(os.path.realpath(sys.executable))
