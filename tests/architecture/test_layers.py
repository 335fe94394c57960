"""The layers hold in the code as it is, and each contract of pyproject.toml can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = ROOT / "pyproject.toml"
CONTRACTS = {
    contract["name"]: contract for contract in tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
}

DOWN_ONLY = "Imports go down only"
PURE = "Judgement is pure"
FRONT_DOORS = "Front doors see the manager, the tools and the values"
ENGINES = "Only manager.assemble names concrete engines"
ADAPTERS = "Only confinement.choose names concrete adapters"

# (the contract that must notice, the module that breaks it, what it imports)
VIOLATIONS = [
    (DOWN_ONLY, "errors", "ringfence.values"),
    (DOWN_ONLY, "values", "ringfence.policy"),
    (DOWN_ONLY, "shell", "ringfence.policy"),
    (DOWN_ONLY, "engines", "ringfence.manager"),
    (DOWN_ONLY, "manager", "ringfence.cli"),
    (DOWN_ONLY, "server", "ringfence.mcp"),
    (DOWN_ONLY, "workspace", "ringfence.audit"),
    (DOWN_ONLY, "helpers", "ringfence.errors"),
    (PURE, "shell", "subprocess"),
    (PURE, "policy.load", "socket"),
    (PURE, "values", "asyncio"),
    (FRONT_DOORS, "cli.commands.run", "ringfence.engines"),
    (FRONT_DOORS, "server.app", "ringfence.confinement"),
    (ENGINES, "manager.pipeline", "ringfence.engines.native.engine"),
    (ENGINES, "pool", "ringfence.engines.docker"),
    (ADAPTERS, "engines.native.engine", "ringfence.confinement.linux.bwrap"),
    (ADAPTERS, "manager.doctor", "ringfence.confinement.macos"),
]

# A package with every layer and no violation: what each of VIOLATIONS is added to.
CLEAN = {
    "__main__": "ringfence.cli",
    "cli.commands.run": "ringfence.manager",
    "server.app": "ringfence.tools",
    "mcp": "ringfence.tools",
    "integrations": "ringfence.tools",
    "cluster": "ringfence.manager",
    "tools": "ringfence.manager",
    "manager.assemble": "ringfence.engines.native.engine",
    "manager.pipeline": "ringfence.engines",
    "manager.doctor": "ringfence.confinement.choose",
    "pool": "ringfence.engines",
    "engines.native.engine": "ringfence.confinement.choose",
    "engines.docker": "subprocess",
    "browser": "asyncio",
    "confinement.choose": "ringfence.confinement.linux.bwrap",
    "confinement.linux.bwrap": "ringfence.limits",
    "confinement.macos": "ringfence.values",
    "egress": "socket",
    "workspace": "ringfence.values",
    "approvals": "ringfence.values",
    "audit": "ringfence.values",
    "limits": "ringfence.policy",
    "policy.load": "ringfence.shell",
    "shell": "ringfence.values",
    "values": "ringfence.errors",
    "errors": "enum",
}


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the configuration and the package below `root`."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-logo", "--no-cache"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def add_import(root: Path, module: str, imported: str) -> None:
    """Let ringfence.<module> import `imported`; makes the packages on the way."""
    directory = root / "src"
    for name in ("ringfence", *module.split(".")):
        directory /= name
        directory.mkdir(exist_ok=True)
        (directory / "__init__.py").touch()
    with (directory / "__init__.py").open("a") as file:
        file.write(f"import {imported}\n")


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    shutil.copy(PYPROJECT, tmp_path)
    for module, imported in CLEAN.items():
        add_import(tmp_path, module, imported)
    return tmp_path


def test_the_code_keeps_every_contract() -> None:
    done = lint_imports(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_that_keeps_the_layers_passes(clean: Path) -> None:
    done = lint_imports(clean)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("contract", "module", "imported"), VIOLATIONS)
def test_a_broken_layer_is_noticed(clean: Path, contract: str, module: str, imported: str) -> None:
    add_import(clean, module, imported)

    done = lint_imports(clean)

    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout


def test_every_contract_is_shown_to_fail() -> None:
    assert {contract for contract, _, _ in VIOLATIONS} == CONTRACTS.keys()
