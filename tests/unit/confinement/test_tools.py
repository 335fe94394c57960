"""Tools: what PATH reaches works, nothing else of a home shows, and the agent's own links lead nowhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.confinement.linux.tools import Tools, find_tools


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home" / "ann"
    for name in (".ssh", ".config/gh", ".local/bin", "project"):
        (home / name).mkdir(parents=True)
    (home / ".ssh" / "id").touch()
    (home / ".config/gh/hosts.yml").touch()
    return home


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def python(prefix: Path) -> Path:
    """A Python installation."""
    (prefix / "lib" / "python3.12").mkdir(parents=True)
    (prefix / "lib" / "python3.12" / "os.py").touch()
    return program(prefix / "bin" / "python3.12")


def find(
    home: Path,
    *path: Path | str,
    denied: Callable[[str], str | None] = lambda path: None,
    visible: tuple[str, ...] = (),
) -> Tools:
    return find_tools(
        ":".join(map(str, path)),
        home=str(home),
        workspaces=(str(home / "project"),),
        visible=("/usr", *visible),
        denied=denied,
    )


def roots(tools: Tools, home: Path) -> set[str]:
    return {str(Path(root).relative_to(home)) for root in tools.roots}


@pytest.mark.req("X1")
@pytest.mark.parametrize(
    ("entry", "root"),
    [
        (".pyenv/shims", ".pyenv"),
        (".pyenv/versions/3.12/bin", ".pyenv"),
        (".nvm/versions/node/v22/bin", ".nvm"),
        ("miniconda3/bin", "miniconda3"),
        (".local/share/uv/python/cpython-3.12/bin", ".local/share/uv"),
        (".local/share/mise/installs/node/bin", ".local/share/mise"),
        (".cargo/bin", ".cargo/bin"),
        ("go/bin", "go/bin"),
        (".local/bin", ".local/bin"),
        ("bin", "bin"),
    ],
)
def test_a_version_manager_is_shown_whole_and_a_plain_directory_alone(home: Path, entry: str, root: str) -> None:
    program(home / entry / "tool")

    tools = find(home, home / entry)

    assert roots(tools, home) == {root}
    assert tools.path == str(home / entry)


def test_cargo_brings_the_directory_that_its_programs_look_into(home: Path) -> None:
    program(home / ".cargo" / "bin" / "cargo")
    (home / ".rustup").mkdir()

    assert roots(find(home, home / ".cargo/bin"), home) == {".cargo/bin", ".rustup"}


def test_an_environment_on_the_path_comes_with_its_base(home: Path) -> None:
    python(home / "opt" / "py312")
    program(home / "envs" / "web" / "bin" / "pip")
    (home / "envs/web/pyvenv.cfg").write_text(f"home = {home}/opt/py312/bin\nversion = 3.12\n")

    assert roots(find(home, home / "envs/web/bin"), home) == {"envs/web", "opt/py312"}


@pytest.mark.parametrize("tools", [".local/share/pipx/venvs/black", ".local/share/uv/tools/black"])
def test_links_in_a_directory_of_programs_bring_what_they_lead_to(home: Path, tools: str) -> None:
    target = program(home / tools / "bin" / "black")
    (home / ".local/bin/black").symlink_to(target)

    found = roots(find(home, home / ".local/bin"), home)

    assert found == {".local/bin", str(Path(tools).parent.parent)}


@pytest.mark.req("A3", "A4")
@pytest.mark.parametrize("entry", ["", ".config", ".local", ".cache", ".local/share"])
def test_a_home_and_its_shared_directories_are_never_shown_whole(home: Path, entry: str) -> None:
    program(home / entry / "tool")

    tools = find(home, home / entry)

    assert tools.roots == ()
    assert str(home / entry) not in tools.path.split(":")


@pytest.mark.parametrize("where", ["deploy.sh", "Documents/deploy.sh", ".config/gh/deploy.sh"])
def test_a_link_to_a_program_beside_other_things_shows_the_program_only(home: Path, where: str) -> None:
    (home / ".local/bin/deploy").symlink_to(program(home / where))

    assert roots(find(home, home / ".local/bin"), home) == {".local/bin", where}


def test_a_link_to_what_is_no_program_shows_nothing(home: Path) -> None:
    (home / ".local/bin/innocent").symlink_to(home / ".config/gh/hosts.yml")

    assert roots(find(home, home / ".local/bin"), home) == {".local/bin"}


def test_a_link_into_node_modules_shows_the_modules(home: Path) -> None:
    (home / ".local/bin/tool").symlink_to(program(home / ".local/lib/node_modules/tool/cli.js"))

    assert roots(find(home, home / ".local/bin"), home) == {".local/bin", ".local/lib/node_modules"}


@pytest.mark.req("A3")
def test_a_denied_directory_is_not_shown_even_if_it_is_on_the_path(home: Path) -> None:
    program(home / ".ssh" / "bin" / "tool")

    def denied(path: str) -> str | None:
        return "~/.ssh" if path.startswith(f"{home}/.ssh") else None

    assert find(home, home / ".ssh/bin", denied=denied).roots == ()
    assert roots(find(home, home / ".ssh/bin"), home) == {".ssh/bin"}  # the twin: without the rule it would be


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", "~/bin", "/not/there"])
def test_what_is_no_absolute_directory_is_dropped_from_the_path(home: Path, entry: str) -> None:
    tools = find(home, entry, "/usr/bin")

    assert (tools.path, tools.roots) == ("/usr/bin", ())


def test_an_empty_path_becomes_the_system_s(home: Path) -> None:
    assert find(home, "").path == "/usr/local/bin:/usr/bin:/bin"


# --- what the agent may have written ----------------------------------------------------------------------------------


def lying_environment(home: Path, target: str) -> None:
    (home / "project/.venv").mkdir()
    (home / "project/.venv/pyvenv.cfg").write_text(f"home = {target}\n")


@pytest.mark.req("A3", "A4")
@pytest.mark.parametrize(
    "target", ["{home}/.ssh", "{home}/.config/gh", "{home}", "/", "relative", "", "{home}/missing"]
)
def test_an_environment_that_lies_about_its_base_shows_nothing(home: Path, target: str) -> None:
    lying_environment(home, target.format(home=home))

    assert find(home).roots == ()


def test_an_environment_that_tells_the_truth_shows_its_base(home: Path) -> None:
    python(home / "opt" / "py312")
    lying_environment(home, f"{home}/opt/py312/bin")

    assert roots(find(home), home) == {"opt/py312"}


def test_a_base_with_a_program_but_no_library_is_not_believed(home: Path) -> None:
    program(home / ".config" / "gh" / "python3")
    (home / ".config/lib").mkdir()
    lying_environment(home, f"{home}/.config/gh")

    assert find(home).roots == ()


@pytest.mark.req("A3", "A4")
def test_a_link_in_the_workspace_does_not_show_what_it_leads_to(home: Path) -> None:
    bin = home / "project" / ".venv" / "bin"
    bin.mkdir(parents=True)
    (home / ".config/gh/hosts.yml").chmod(0o755)
    (bin / "innocent").symlink_to(home / ".config/gh/hosts.yml")

    tools = find(home, bin)

    assert tools.roots == ()
    assert tools.path == str(bin)


def test_the_same_link_outside_of_the_workspace_does(home: Path) -> None:
    (home / ".config/gh/hosts.yml").chmod(0o755)
    (home / ".local/bin/innocent").symlink_to(home / ".config/gh/hosts.yml")

    assert roots(find(home, home / ".local/bin"), home) == {".local/bin", ".config/gh/hosts.yml"}


def test_a_directory_on_the_path_that_the_agent_replaced_by_a_link_shows_nothing(home: Path) -> None:
    (home / "project/bin").symlink_to(home / ".config/gh")

    assert find(home, home / "project/bin").roots == ()


@pytest.mark.parametrize("through", ["the file", "its directory"])
def test_a_link_that_leads_through_the_workspace_shows_nothing(home: Path, through: str) -> None:
    scripts = home / "project" / "scripts"
    (home / ".local/bin/tool").symlink_to(scripts / "hosts.yml")
    if through == "the file":
        scripts.mkdir()
        (scripts / "hosts.yml").symlink_to(home / ".config/gh/hosts.yml")
    else:
        scripts.symlink_to(home / ".config/gh")

    assert roots(find(home, home / ".local/bin"), home) == {".local/bin"}


def test_a_loop_of_links_ends(home: Path) -> None:
    (home / ".local/bin/a").symlink_to("b")
    (home / ".local/bin/b").symlink_to("a")

    assert roots(find(home, home / ".local/bin"), home) == {".local/bin"}


def test_an_environment_in_the_workspace_stays_writable(home: Path) -> None:
    """Shown as a tool root it would be covered by a read-only mount."""
    program(home / "project/.venv/bin/pip")
    (home / "project/.venv/lib").mkdir()

    assert find(home, home / "project/.venv/bin").roots == ()
