"""A person's account: the tools that PATH reaches run inside as they are, and nothing else of the home is there."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ringfence
from ringfence.confinement.choose import confiners
from ringfence.engines.native.engine import NativeEngine
from ringfence.values.grant import Grant
from ringfence.values.outcome import Result
from ringfence.values.request import Request
from tests.integration.stage import SECRET, SYSTEM_PATH, Place

pytestmark = pytest.mark.req("X1", "D3", "A3")

SECRETS = (
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".netrc",
    ".gitconfig-extra",
    ".config/x/token",
    ".config/gh/hosts.yml",
    ".bash_history",
    ".npmrc",
    ".pypirc",
    ".docker/config.json",
    ".cargo/credentials.toml",
    ".local/share/keyrings/login.keyring",
    ".local/state/secret",
    "Documents/letter.txt",
    "random-file",
)


def script(path: Path, says: str, shebang: str = "#!/bin/sh") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{shebang}\necho {says}\n")
    path.chmod(0o755)


@pytest.fixture
def person(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A home with version managers, links into them, and secrets in every corner."""
    home = place.home
    for name in SECRETS:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    script(home / ".pyenv/versions/3.99/bin/python3.99", "pyenv python")
    script(home / ".pyenv/libexec/pyenv", "pyenv itself")
    script(home / ".pyenv/shims/shimmed", "a shim", f"#!{home}/.pyenv/libexec/interp")
    shutil.copy("/bin/sh", home / ".pyenv/libexec/interp")
    script(home / ".nvm/versions/node/v99/bin/node99", "nvm node")
    script(home / ".nvm/versions/node/v99/lib/node_modules/tool/cli", "an npm tool")
    (home / ".nvm/versions/node/v99/bin/tool").symlink_to("../lib/node_modules/tool/cli")
    script(home / ".local/share/pipx/venvs/black/bin/black99", "a pipx tool")
    script(home / ".local/share/uv/tools/ruff/bin/ruff99", "a uv tool")
    (home / ".local/bin").mkdir(parents=True, exist_ok=True)
    (home / ".local/bin/black99").symlink_to(home / ".local/share/pipx/venvs/black/bin/black99")
    (home / ".local/bin/ruff99").symlink_to("../share/uv/tools/ruff/bin/ruff99")
    script(home / ".local/bin/own", "a script of mine")
    script(home / ".cargo/bin/cargo99", "cargo")
    path = [".pyenv/shims", ".pyenv/versions/3.99/bin", ".nvm/versions/node/v99/bin", ".local/bin", ".cargo/bin"]
    monkeypatch.setenv("PATH", ":".join([*(str(home / entry) for entry in path), SYSTEM_PATH]))
    if os.geteuid() == 0:
        home.chmod(0o700)  # as /root is: the uid that the box runs as cannot enter it
    return place


TOOLS = {
    "python3.99": "pyenv python",
    "shimmed": "a shim",
    "node99": "nvm node",
    "tool": "an npm tool",
    "black99": "a pipx tool",
    "ruff99": "a uv tool",
    "own": "a script of mine",
    "cargo99": "cargo",
}


def test_the_tools_that_path_reaches_run_inside(person: Place) -> None:
    done = person.run("; ".join(TOOLS))

    assert (done.stdout.splitlines(), done.stderr) == (list(TOOLS.values()), "")


def test_nothing_else_of_the_home_can_be_read_or_listed(person: Place) -> None:
    attempt = (
        "cd ~; grep -rs hunter2 . ; find . -type f | grep -v "
        "'/\\.\\(pyenv\\|nvm\\|local/bin\\|local/share/\\(pipx\\|uv\\)\\|cargo/bin\\)/' | grep -v "
        "'^./project'; "
    ) + "; ".join(f"cat ~/{name}; ls -d ~/{name}" for name in SECRETS)

    done = person.run(attempt)

    assert done.stdout == ""
    assert done.exit_code != 0

    twin = person.host(attempt)
    assert twin.stdout.count(SECRET) >= 2 * len(SECRETS)


def test_only_what_leads_to_a_tool_shows_in_the_home(person: Place) -> None:
    done = person.run("ls -A ~ ~/.local ~/.local/share ~/.cargo")

    assert done.stdout.split() == [
        f"{person.home}:", ".cargo", ".local", ".nvm", ".pyenv", "project",
        f"{person.home}/.cargo:", "bin",
        f"{person.home}/.local:", "bin", "share",
        f"{person.home}/.local/share:", "pipx", "uv",
    ]  # fmt: skip


def test_tools_cannot_be_changed_from_inside(person: Place) -> None:
    before = {path: path.read_bytes() for path in person.home.rglob("*") if path.is_file()}

    person.run(
        "for f in ~/.pyenv/shims/shimmed ~/.local/bin/own ~/.cargo/bin/cargo99; do echo evil > "
        "$f; rm -f $f; chmod 777 $f; done;"
        " touch ~/.local/bin/new ~/.nvm/new; mv ~/.pyenv ~/gone; ln -sf /bin/false ~/.local/bin/black99"
    )

    after = {
        path: path.read_bytes() for path in person.home.rglob("*") if path.is_file() and ".ringfence" not in path.parts
    }
    assert after == before


def test_a_link_to_a_program_beside_secrets_shows_the_program_only(person: Place) -> None:
    script(person.home / "Documents/handy", "handy")
    (person.home / ".local/bin/handy").symlink_to(person.home / "Documents/handy")

    done = person.run("handy; cat ~/Documents/letter.txt; ls ~/Documents")

    assert SECRET not in done.stdout
    assert "letter.txt" not in done.stdout
    assert done.stdout.splitlines()[0] == "handy"


def test_the_home_inside_is_empty_writable_and_gone_afterwards(place: Place) -> None:
    done = place.run(
        "ls -A ~; echo mine > ~/.bashrc; mkdir ~/.ssh && echo k > ~/.ssh/id; cat ~/.ssh/id; echo "
        "$HOME; test -O ~ && stat -c %a ~"
    )

    assert done.stdout.split() == ["project", "k", str(place.home), "755"]
    assert (place.home / ".ssh" / "key").read_text() == SECRET
    assert not (place.home / ".bashrc").exists()
    assert place.run("ls -A ~").stdout == "project\n"


# --- virtual environments ---------------------------------------------------------------------------------------------


@pytest.fixture
def interpreter(place: Place) -> Path:
    """A Python installation below the home, as a version manager puts it there: the machine's own, copied in part."""
    root = place.home / ".pyenv" / "versions" / "3.x"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix)
    library = base / "lib" / version
    if not (library / "os.py").exists():
        pytest.skip("the interpreter's library lies elsewhere")
    (root / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    real = os.path.realpath(sys.executable)
    shutil.copy(real, root / "bin" / version)
    (root / "bin" / "python3").symlink_to(version)
    if stat.S_IMODE(os.stat(real).st_mode) & 0o111 == 0:
        pytest.skip("cannot be copied")
    skip = shutil.ignore_patterns(
        "test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "ensurepip", "config-*"
    )
    shutil.copytree(library, root / "lib" / version, symlinks=True, ignore=skip)
    done = subprocess.run(
        [root / "bin" / "python3", "-I", "-c", "import sys, ssl; print(sys.base_prefix)"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stdout.strip() != str(root):
        pytest.skip(f"a copied interpreter does not run on its own here: {done.stdout}{done.stderr[-200:]}")
    return root


def test_a_virtual_environment_of_the_workspace_runs_with_its_base_interpreter(place: Place, interpreter: Path) -> None:
    made = place.host(f"{interpreter}/bin/python3 -m venv --without-pip --symlinks .venv")
    assert made.returncode == 0, made.stderr
    (place.home / ".pyenv-secret").write_text(SECRET)
    if os.geteuid() == 0:
        place.home.chmod(0o700)

    done = place.run(
        ".venv/bin/python -c 'import sys, json; print(sys.prefix, sys.base_prefix)'; cat "
        "~/.pyenv-secret ~/diary ~/.ssh/key"
    )

    assert done.stdout == f"{place.workspace}/.venv {interpreter}\n", done.stderr


def test_a_virtual_environment_that_names_no_interpreter_shows_nothing(place: Place) -> None:
    """The file is the agent's to write: it must not be a way to have a directory of the host shown."""
    (place.home / "Documents").mkdir()
    (place.home / "Documents" / "letter").write_text(SECRET)
    for home in (
        place.home / "Documents",
        place.home,
        place.home / ".ssh",
        place.home / "Documents" / "bin",
        "/root",
        "/",
        "../..",
        "",
    ):
        (place.workspace / ".venv").mkdir(exist_ok=True)
        (place.workspace / ".venv" / "pyvenv.cfg").write_text(f"home = {home}\n")

        done = place.run("cat ~/Documents/letter ~/diary ~/.ssh/key; ls -A ~")

        assert done.stdout == "project\n", home


# --- the environment --------------------------------------------------------------------------------------------------


def test_locale_time_zone_and_terminal_come_along(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "LANG": "de_DE.UTF-8",
        "LC_TIME": "C",
        "TZ": "Asia/Tokyo",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "NO_COLOR": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    seen = dict(line.split("=", 1) for line in place.run("env").stdout.splitlines())

    assert {name: seen.get(name) for name in given} == given


def test_credentials_and_the_rest_of_the_environment_stay_outside(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (
        "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "GITHUB_TOKEN", "DATABASE_URL",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "LD_PRELOAD_X", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV",
        "PROMPT_COMMAND",
        "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_CONFIG_PARAMETERS", "http_proxy", "MY_OWN", "BASH_FUNC_x%%",
    )  # fmt: skip
    for name in names:
        monkeypatch.setenv(name, SECRET)

    done = place.run("env; cat /proc/*/environ | tr '\\0' '\\n'; set | grep hunter2")

    assert SECRET not in done.stdout
    assert not {name for name in names if f"\n{name}=" in "\n" + done.stdout}


def test_a_variable_that_is_given_on_purpose_comes_along(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)

    assert place.run("echo $GITHUB_TOKEN", env={"GITHUB_TOKEN": os.environ["GITHUB_TOKEN"]}).stdout == f"{SECRET}\n"


def test_gits_name_and_email_come_by_environment_and_the_file_stays_outside(place: Place) -> None:
    (place.home / ".gitconfig").write_text(
        f'[user]\n\tname = "Ada Lovelace"\n\temail = ada@example.org\n\tsigningkey = {SECRET}\n'
        f'[credential]\n\thelper = store\n[url "https://{SECRET}@github.com/"]\n\tinsteadOf = https://github.com/\n'
    )

    done = place.run("env | grep GIT_ | sort; cat ~/.gitconfig; git config --list")

    assert "GIT_AUTHOR_NAME=Ada Lovelace\n" in done.stdout
    assert "GIT_COMMITTER_EMAIL=ada@example.org\n" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_the_variables_of_git_beat_its_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.home / ".gitconfig").write_text("[user]\n\tname = Ada\n")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Grace")

    assert place.run("echo $GIT_AUTHOR_NAME $GIT_COMMITTER_NAME").stdout == "Grace Ada\n"


def test_a_change_of_the_gitconfig_is_seen_by_the_next_box(place: Place) -> None:
    (place.home / ".gitconfig").write_text("[user]\n\tname = Ada\n")
    assert place.run("echo $GIT_AUTHOR_NAME").stdout == "Ada\n"

    (place.home / ".gitconfig").write_text("[user]\n\tname = Grace\n")

    assert place.run("echo $GIT_AUTHOR_NAME").stdout == "Grace\n"


def test_the_users_of_the_machine_stay_unknown(place: Place) -> None:
    done = place.run("cat /etc/passwd /etc/group; getent passwd; cat /etc/shadow /etc/hostname; hostname; id -un")

    assert {line.split(":")[0] for line in done.stdout.splitlines() if ":" in line} <= {
        "root",
        "agent",
        "nobody",
        "nogroup",
    }
    assert "sandbox" in done.stdout
    assert isinstance(done.ending, ringfence.Exited)


@pytest.mark.req("C2")
def test_a_version_manager_s_shim_is_not_run_for_each_call(tmp_path: Path) -> None:
    """The shim here takes a second, and says so; the real interpreter is the one that runs the tests."""
    root = tmp_path / "home" / ".pyenv"
    real = root / "versions" / "3.99.1" / "bin"
    for directory in (real, root / "shims", tmp_path / "work"):
        directory.mkdir(parents=True)
    (real / "python3").symlink_to(os.path.realpath(sys.executable))
    shim = root / "shims" / "python3"
    shim.write_text(f'#!/bin/sh\nsleep 1; echo shim >&2\nexec {real}/python3 "$@"\n')
    shim.chmod(0o755)
    (root / "version").write_text("3.99.1\n")
    environ = {"PATH": f"{root}/shims:/usr/bin:/bin"}

    async def main() -> tuple[Result, Result, float]:
        box = await NativeEngine(confiners(), environ, str(tmp_path / "home")).open(Grant(workspace=tmp_path / "work"))
        try:
            begin = time.monotonic()
            ran = await box.run(Request(command="python3 -c 'import sys; print(sys.executable)'"))
            shown = await box.run(Request(code="import sys; sys.executable", language="python"))
            return ran, shown, time.monotonic() - begin
        finally:
            await box.close()

    ran, shown, seconds = asyncio.run(main())

    assert (ran.stdout, ran.stderr) == (f"{real}/python3\n", "")
    assert str(real) in str(shown.results[0].text)
    assert seconds < 1
