"""No start compiles what was compiled before: neither without leave to write bytecode, nor in a read-only place."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence
from tests.support.wheels import PIP, PROJECT, a_wheel

START = "import ringfence.cli.app, ringfence.manager.assemble"


def compiled_anew(package_parent: Path) -> list[str]:
    """The modules of ours that a start has to compile, by the interpreter's own account."""
    site = Path(pytest.__file__).resolve().parents[1]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{package_parent}:{site}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-v", "-c", START],
        capture_output=True,
        text=True,
        env=env,
        check=True,
        cwd="/",
    )
    here = re.escape(str(package_parent / "ringfence"))
    assert re.search(rf"code object from {here}|matches {here}", done.stderr), "ours was not what was imported"
    return re.findall(rf"code object from ({here}/\S*\.py)", done.stderr)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree and installed by pip, in a directory that nobody may write to."""
    top = tmp_path_factory.mktemp("installed")
    wheel = a_wheel(top)
    target = top / "site"
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True)
    subprocess.run(["chmod", "-R", "a-w", str(target)], check=True)
    return target


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
def test_an_installed_package_is_compiled_and_needs_no_writable_place(installed: Path) -> None:
    assert compiled_anew(installed) == []


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")
def test_it_runs_from_a_place_that_nobody_may_write_to(installed: Path, tmp_path: Path) -> None:
    site = Path(pytest.__file__).resolve().parents[1]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": f"{installed}:{site}"}
    (tmp_path / "project").mkdir()
    program = "import ringfence; print(ringfence.__file__); print(ringfence.run('echo hi').stdout)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=tmp_path / "project", check=False
    )

    assert done.stdout.split() == [str(installed / "ringfence" / "__init__.py"), "hi"], done.stderr


def test_without_compiled_files_a_start_would_compile_them(tmp_path: Path) -> None:
    """The twin: what is counted is really what happens."""
    package = Path(ringfence.__file__).parent
    shutil.copytree(package, tmp_path / "ringfence", ignore=shutil.ignore_patterns("__pycache__"))

    assert len(compiled_anew(tmp_path)) > 50


def test_set_up_compiles_a_checkout_whatever_the_environment_says(tmp_path: Path) -> None:
    script = (PROJECT / "scripts" / "setup.sh").read_text()
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    assert script.endswith('\nmain "$@"\n')
    (tmp_path / "scripts" / "setup.sh").write_text(script.removesuffix('main "$@"\n') + "compile_project\n")
    package = Path(ringfence.__file__).parent
    shutil.copytree(package, tmp_path / "src" / "ringfence", ignore=shutil.ignore_patterns("__pycache__"))

    subprocess.run(
        ["sh", "scripts/setup.sh"], cwd=tmp_path, check=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    )

    assert compiled_anew(tmp_path / "src") == []
