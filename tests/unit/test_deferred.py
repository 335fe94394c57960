"""Names that are loaded when they are used, and the version, which is not looked up."""

import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from ringfence.deferred import deferred, deferred_module
from ringfence.version import VERSION

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "rf_waits.py").write_text("LOADED = True\ndef twice(x, *, plus=0):\n    return 2 * x + plus\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rf_waits", raising=False)
    return "rf_waits"


def test_a_function_is_loaded_at_its_first_call(module: str) -> None:
    twice = deferred(module, "twice")
    assert module not in sys.modules

    assert twice(3, plus=1) == 7
    assert module in sys.modules
    assert twice.__name__ == "twice"


def test_a_module_is_loaded_at_the_first_look(module: str) -> None:
    later = deferred_module(module)
    assert repr(later) == "<deferred module 'rf_waits'>"
    assert module not in sys.modules

    assert later.LOADED
    with pytest.raises(AttributeError, match="nothing"):
        _ = later.nothing


def test_a_name_that_is_not_there_is_an_error_at_the_call(module: str) -> None:
    with pytest.raises(AttributeError, match="thrice"):
        deferred(module, "thrice")()
    with pytest.raises(ModuleNotFoundError):
        deferred("rf_nowhere", "x")()


def test_a_module_that_another_thread_is_loading_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rf_slow.py").write_text("import time\nBEGUN = True\ntime.sleep(0.2)\nLAST = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rf_slow", raising=False)
    later = deferred_module("rf_slow")

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: later.LAST, range(8))) == [1] * 8


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from ringfence.deferred import load
if sys.argv[1] == "spare":
    load("ringfence.errors")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass
print(load("ringfence.values.limits").__name__)
"""


def test_what_a_fault_needs_is_loaded_without_a_descriptor_left() -> None:
    done = {
        what: subprocess.run(
            [sys.executable, "-c", WITHOUT_DESCRIPTORS, what], capture_output=True, text=True, timeout=60, check=False
        )
        for what in ("spare", "none")
    }

    assert done["spare"].stdout == "ringfence.values.limits\n", done["spare"].stderr
    assert "Too many open files" in done["none"].stderr, "where none was kept, it cannot be"


def test_the_version_is_that_of_the_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    assert version("ringfence") == VERSION
