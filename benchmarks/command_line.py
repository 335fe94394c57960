"""Our own command line as a user has it: started as a program, with a policy and the journal on."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.rounds import Case
from benchmarks.sections import BARE, COMMAND_LINE

_IMPORT = "import ringfence; ringfence.run"


def ringfence_program() -> str:
    beside = Path(sys.executable).with_name("ringfence")
    found = str(beside) if beside.exists() else shutil.which("ringfence")
    if found is None:
        raise FileNotFoundError("the program `ringfence` is not installed beside the interpreter")
    return found


def program(name: str, line: list[str], cwd: Path, section: str, group: str = "ringfence", **env: str) -> Case:
    """A case that starts a program and checks that it ended well."""
    surroundings = {**os.environ, **env}

    async def run() -> None:
        subprocess.run(line, check=True, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=surroundings)

    return Case(name, run, group=group, section=section)


def command_lines(workspace: Path, policy: Path) -> Iterator[Case]:
    """With and without the keeper, where this version has one: without it, both are the same."""
    run = [ringfence_program(), "run", "--policy", str(policy), "--", "/bin/true"]
    kept = program("ringfence run: true, keeper running", run, workspace, COMMAND_LINE, RINGFENCE_KEEPER="on")
    kept.at_most = 4
    alone = program("ringfence run: true, no keeper", run, workspace, COMMAND_LINE, RINGFENCE_KEEPER="off")
    alone.at_most = 80
    has_keeper = _has_keeper()
    if has_keeper:
        from benchmarks.keeper import box_ready

        kept.setup = box_ready(run, {**os.environ, "RINGFENCE_KEEPER": "on"}, workspace)
        yield kept
    else:
        alone.name = "ringfence run: true"
    yield alone
    help_page = program("ringfence --help", [ringfence_program(), "--help"], workspace, COMMAND_LINE)
    help_page.at_most, help_page.is_charted = 30, False
    yield help_page
    nothing = program("python -c pass, as we are run", [sys.executable, "-c", "pass"], workspace, BARE, "bare")
    imports = program("import ringfence; ringfence.run", [sys.executable, "-c", _IMPORT], workspace, BARE)
    imports.at_most, imports.of = 3, nothing
    nothing.is_charted = imports.is_charted = False
    yield nothing
    yield imports


def stop_keeper() -> None:
    """The one that the measured calls have started, in the state directory of this run."""
    if _has_keeper():
        subprocess.run([ringfence_program(), "keeper", "stop"], check=False, capture_output=True)


def _has_keeper() -> bool:
    return find_spec("ringfence.keeper") is not None
