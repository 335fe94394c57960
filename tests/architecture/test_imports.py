"""What is loaded, by whom: `import ringfence; ringfence.run`, a run, and every command, held to a list.

A module that is not on the list of its line fails, and the message names the import that brought it. If it belongs
there, `python -m tests.architecture.test_imports` writes the lists anew; the difference is then part of the change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ringfence.cli.names import COMMANDS

LISTS = Path(__file__).parent / "data" / "imports.json"
IMPORT = "import ringfence; ringfence.run"
RUN = "ringfence run true"
HELP = "ringfence --help"
LINES = (IMPORT, "import ringfence; ringfence.Sandbox", "import ringfence; ringfence.SandboxManager", RUN, HELP)
OF_COMMANDS = tuple(f"ringfence {name} --help" for name in COMMANDS)

ALTERNATIVES = {
    "ringfence.limits.polling",
    "ringfence.limits.cgroup_v1",
    "ringfence.limits.cgroup_v2",
    "configparser",
    "tomllib",
}
"""What a machine or its user decides: which groups there are, whether git is set up."""

NEVER = (
    "docker",
    "typescript",
    "javascript",
    "tree_sitter",
    "typer",
    "click",
    "rich",
    "pydantic",
    "yaml",
    "ssl",
    "egress",
)
"""Words of modules that one plain run has no use for, whatever the list says."""

_SPY = """
import sys
import importlib._bootstrap as bootstrap
loading, brought = [], {}
load = bootstrap._load_unlocked
def spy(spec):
    brought.setdefault(spec.name, loading[-1] if loading else "the command line")
    loading.append(spec.name)
    try:
        return load(spec)
    finally:
        loading.pop()
bootstrap._load_unlocked = spy
line = sys.argv[1]
try:
    if line.startswith("ringfence "):
        sys.argv = line.split()
        from ringfence.cli.app import main
        main()
    else:
        exec(line)
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.stdout = sys.stderr
    import json, os
    with open(os.environ["SPY"], "w") as file:
        json.dump(brought, file)
"""


@cache
def loaded(line: str, home: str) -> dict[str, str]:
    """Each module that the line loads, and who imported it."""
    answer, project = Path(home, "loaded.json"), Path(home, "project")
    project.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _SPY, line],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": home, "SPY": os.fspath(answer)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(answer.read_text())
    answer.unlink()
    return found


def chain(module: str, brought: dict[str, str]) -> str:
    words = [module]
    while words[-1] in brought:
        words.append(brought[words[-1]])
    return " <- ".join(words)


def own(brought: dict[str, str]) -> list[str]:
    """Of Ringfence each module; of others the package alone, since the standard library differs from version to
    version."""
    return sorted({name for name in brought if name.split(".")[0] == "ringfence"})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("line", [*LINES, *OF_COMMANDS])
def test_a_line_loads_nothing_that_is_not_on_its_list(line: str, home: str) -> None:
    brought = loaded(line, home)
    listed = set(json.loads(LISTS.read_text())[line]) | ALTERNATIVES

    more = [chain(name, brought) for name in own(brought) if name not in listed]

    assert not more, "loaded, and not on the list of tests/architecture/data/imports.json:\n" + "\n".join(more)


@pytest.mark.parametrize("line", [*LINES, *OF_COMMANDS])
def test_a_list_has_nothing_that_is_not_loaded(line: str, home: str) -> None:
    """Else it would let something in again that was once thrown out."""
    gone = set(json.loads(LISTS.read_text())[line]) - set(own(loaded(line, home))) - ALTERNATIVES

    assert sorted(gone) == []


@pytest.mark.parametrize("line", [IMPORT, RUN, HELP, "import ringfence; ringfence.Sandbox"])
def test_one_call_loads_no_part_that_it_has_no_use_for(line: str, home: str) -> None:
    brought = loaded(line, home)
    needless = [
        chain(name, brought)
        for name in brought
        if any(part in NEVER for part in name.split("."))
        # A program's own asyncio brings TLS with it; a command line's does not.
        and not (line.startswith("import") and part_of_asyncio(name, brought))
    ]

    assert needless == []


def part_of_asyncio(name: str, brought: dict[str, str]) -> bool:
    return " <- asyncio" in chain(name, brought)


def test_the_import_of_the_package_loads_no_asyncio(home: str) -> None:
    brought = loaded(IMPORT, home)

    assert "asyncio" not in brought
    assert "dataclasses" not in brought
    assert "asyncio" in loaded("import ringfence; ringfence.Sandbox", home)  # the twin: it would be seen


def test_a_module_too_many_is_named_with_the_way_it_came(home: str) -> None:
    brought = loaded("import ringfence.policy.load", home)

    assert chain("yaml", brought).startswith("yaml <- ringfence.policy.")
    assert chain("yaml", brought).endswith(" <- the command line")


def write_lists() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        lists = {line: own(loaded(line, directory)) for line in (*LINES, *OF_COMMANDS)}
    LISTS.write_text(json.dumps(lists, indent=1) + "\n")


if __name__ == "__main__":
    write_lists()
