"""The real programs behind version managers' shims."""

import os
from pathlib import Path

import pytest

from ringfence.engines.native.shims import resolve_program, resolve_shims

SYSTEM = "/usr/bin:/bin"


class Machine:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.work = root / "projects" / "work"
        self.work.mkdir(parents=True)
        self.home.mkdir()
        self.environ: dict[str, str] = {}

    def install(self, *parts: str, program: str = "python3") -> str:
        directory = self.home.joinpath(*parts, "bin")
        directory.mkdir(parents=True)
        (directory / program).touch(mode=0o755)
        (directory / program).chmod(0o755)
        return str(directory)

    def shims(self, *parts: str) -> str:
        directory = self.home.joinpath(*parts, "shims")
        directory.mkdir(parents=True, exist_ok=True)
        return str(directory)

    def resolve(self, path: str) -> list[str]:
        return resolve_shims(path, self.environ, home=str(self.home), workspace=str(self.work)).split(":")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_path_without_shims_stays_as_it_is(machine: Machine) -> None:
    assert machine.resolve(f"/opt/x:{SYSTEM}") == ["/opt/x", "/usr/bin", "/bin"]


@pytest.mark.parametrize(
    ("manager", "variable", "local"),
    [(".pyenv", "PYENV_VERSION", ".python-version"), (".rbenv", "RBENV_VERSION", ".ruby-version")],
)
def test_pyenv_and_rbenv_say_which_version_by_variable_then_project_then_global(
    machine: Machine, manager: str, variable: str, local: str
) -> None:
    old, new, third = (machine.install(manager, "versions", version) for version in ("3.1.9", "3.1.10", "3.2.0"))
    shims = machine.shims(manager)
    (machine.home / manager / "version").write_text("3.2.0\n")
    assert machine.resolve(f"{shims}:/usr/bin") == [third, shims, "/usr/bin"]

    (machine.work.parent / local).write_text("# ours\n3.1\n")
    assert machine.resolve(f"{shims}:/usr/bin") == [new, shims, "/usr/bin"], "the newest of 3.1"

    machine.environ[variable] = "3.1.9"
    assert machine.resolve(f"{shims}:/usr/bin") == [old, shims, "/usr/bin"]


@pytest.mark.parametrize("said", ["system\n", ""])
def test_where_the_system_s_programs_are_wanted_shims_come_last(machine: Machine, said: str) -> None:
    machine.install(".pyenv", "versions", "3.2.0")
    shims = machine.shims(".pyenv")
    (machine.home / ".pyenv" / "version").write_text(said)

    assert machine.resolve(f"{shims}:/usr/bin") == ["/usr/bin", shims]


def test_a_version_that_is_not_there_is_left_to_the_shim(machine: Machine) -> None:
    machine.install(".pyenv", "versions", "3.2.0")
    shims = machine.shims(".pyenv")
    machine.environ["PYENV_VERSION"] = "9.9.9"

    assert machine.resolve(f"{shims}:/usr/bin") == [shims, "/usr/bin"]


def test_a_manager_elsewhere_is_known_by_its_variable(machine: Machine) -> None:
    real = machine.install("tools", "versions", "3.2.0")
    shims = machine.shims("tools")
    assert machine.resolve(f"{shims}:/usr/bin") == [shims, "/usr/bin"]

    machine.environ |= {"PYENV_ROOT": str(machine.home / "tools"), "PYENV_VERSION": "3.2.0"}
    assert machine.resolve(f"{shims}:/usr/bin") == [real, shims, "/usr/bin"]


def test_asdf_reads_the_nearest_table_of_versions(machine: Machine) -> None:
    python = machine.install(".asdf", "installs", "python", "3.12.1")
    node = machine.install(".asdf", "installs", "nodejs", "20.1.0", program="node")
    other = machine.install(".asdf", "installs", "python", "3.11.0")
    shims = machine.shims(".asdf")
    (machine.home / ".tool-versions").write_text("python 3.11.0\nnodejs 20.1.0\n")
    (machine.work / ".tool-versions").write_text("python 3.12.1 # newer\n")
    assert machine.resolve(f"{shims}:/usr/bin") == [python, node, shims, "/usr/bin"]

    machine.environ["ASDF_PYTHON_VERSION"] = "3.11.0"
    assert machine.resolve(f"{shims}:/usr/bin")[0] == other


def test_mise_reads_its_own_files_and_links_of_short_versions(machine: Machine) -> None:
    machine.install(".local/share/mise", "installs", "python", "3.12.1")
    installs = machine.home / ".local/share/mise/installs/python"
    (installs / "3.12").symlink_to("3.12.1")
    shims = machine.shims(".local/share/mise")
    (machine.home / ".config/mise").mkdir(parents=True)
    (machine.home / ".config/mise/config.toml").write_text('[tools]\npython = ["3.12", "3.11"]\n')

    assert machine.resolve(f"{shims}:/usr/bin") == [str(installs / "3.12" / "bin"), shims, "/usr/bin"]


@pytest.mark.req("A4")
@pytest.mark.parametrize("said", ["../../../evil", "/evil", "..", ".", "a b/../c", "3.2.0/../../x", "\0", "-x"])
def test_a_project_cannot_lead_out_of_what_is_installed(machine: Machine, said: str) -> None:
    """The file may be the agent's."""
    machine.install(".pyenv", "versions", "3.2.0")
    (machine.home / "evil" / "bin").mkdir(parents=True)
    shims = machine.shims(".pyenv")
    (machine.work / ".python-version").write_text(said)
    (machine.work / ".tool-versions").write_text(f"python {said}\n{said} 3.2.0\n")

    for entry in machine.resolve(f"{shims}:/usr/bin"):
        assert entry in (shims, "/usr/bin")


@pytest.mark.req("A4")
def test_a_fifo_or_a_link_in_a_project_is_not_read(machine: Machine) -> None:
    machine.install(".pyenv", "versions", "3.2.0")
    shims = machine.shims(".pyenv")
    (machine.home / "secret").write_text("3.2.0")
    os.mkfifo(machine.work / ".tool-versions")
    (machine.work / ".python-version").symlink_to(machine.home / "secret")

    assert machine.resolve(f"{shims}:/usr/bin") == ["/usr/bin", shims]


def test_a_shim_that_was_asked_for_becomes_the_program(machine: Machine) -> None:
    real = machine.install(".pyenv", "versions", "3.2.0")
    shims = machine.shims(".pyenv")
    machine.environ["PYENV_VERSION"] = "3.2.0"
    places = {"home": str(machine.home), "workspace": str(machine.work)}

    assert resolve_program(f"{shims}/python3", machine.environ, **places) == f"{real}/python3"
    assert resolve_program(f"{shims}/other", machine.environ, **places) == f"{shims}/other"
    assert resolve_program("/usr/bin/python3", machine.environ, **places) == "/usr/bin/python3"
