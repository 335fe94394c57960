"""The first hour of somebody who installs by pip: an ordinary user, a clean environment, no compiler."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import users
from tests.support.wheels import a_wheel

pytestmark = [pytest.mark.req("X1"), pytest.mark.timeout(300)]

COMPILERS = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|c89|c99|tcc|zig|ld|as)([.-]\d.*)?")
SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who owns nothing but a home: a project in it, and a PATH without a compiler."""

    user: users.User
    home: Path
    path: str

    def types(self, line: str, *, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """What is typed into a shell in the project, with the 1,024 open files of a login."""
        kept = {name: os.environ[name] for name in os.environ if re.match(r"PIP_|SSL_CERT_|\w+_(proxy|PROXY)$", name)}
        env = kept | {"HOME": str(self.home), "PATH": self.path, "TMPDIR": str(self.home / "tmp"), "TERM": "dumb"}
        shell = ["/bin/bash", "-c", f"ulimit -n 1024; cd {shlex.quote(str(self.home / 'project'))} && {line}"]
        return subprocess.run(
            users.argv_as(self.user, shell),
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            timeout=seconds,
            check=False,
        )

    def gets(self, line: str) -> str:
        done = self.types(line)
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="rf-pip-"))  # where another user can get to
    try:
        tools = home / "tools"
        for directory in ("project", "tmp", "tools"):
            (home / directory).mkdir()
        for directory in reversed(SYSTEM):
            for program in os.scandir(directory):
                if not COMPILERS.fullmatch(program.name):
                    (tools / program.name).unlink(missing_ok=True)
                    (tools / program.name).symlink_to(program.path)
        (home / "project" / "sums.py").write_text("print(sum(range(100)))\n")
        user = users.ordinary()
        for directory in (home, home / "project", home / "tmp"):
            os.chown(directory, user.uid, user.gid)
            directory.chmod(0o755)
        yield Newcomer(user, home, f"{home}/env/bin:{tools}")
    finally:
        shutil.rmtree(home)


def test_a_wheel_is_installed_without_a_compiler_and_three_commands_run(newcomer: Newcomer) -> None:
    wheel = a_wheel(newcomer.home)
    wheel.chmod(0o644)
    assert shutil.which("cc", path=newcomer.path) is None and shutil.which("python3", path=newcomer.path)

    newcomer.gets(f"{_python()} -m venv {newcomer.home}/env")
    newcomer.gets(f"pip install --quiet --disable-pip-version-check {wheel}")

    assert newcomer.gets('ringfence run "python3 sums.py"') == "4950\n"
    assert newcomer.gets('ringfence run --language python "sum(range(100))"') == "4950\n"
    doctor = newcomer.gets("ringfence doctor")
    assert "ran behind" in doctor and "native helper" in doctor
    assert newcomer.gets(f"python -c {shlex.quote(SNIPPET)}").split() == ["4950", "True"]
    assert newcomer.types("ringfence run 'cat ~/.ssh/id_rsa'").returncode != 0
    _no_more_than_needed(newcomer)


SNIPPET = """
import ringfence
print(ringfence.run("python3 sums.py").stdout)
print(ringfence.run("touch made").ok)
"""


def _no_more_than_needed(newcomer: Newcomer) -> None:
    """Nothing of the tests or the tools came along, and the schema for editors did."""
    listing = json.loads(newcomer.gets("pip list --format json --disable-pip-version-check"))
    installed = {package["name"].lower() for package in listing}
    assert not installed & {"pydantic", "pytest", "hatchling", "ziglang", "mypy"}
    top = newcomer.gets("python -c 'import ringfence; print(ringfence.__path__[0])'").strip()
    assert "$schema" in Path(top, "policy", "policy.schema.json").read_text()
    assert (newcomer.home / "project" / "made").stat().st_uid == newcomer.user.uid


def _python() -> str:
    """The system's, which every user can run, if it is new enough and whole."""
    whole = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run(["/usr/bin/python3", "-c", whole], capture_output=True, check=False).returncode == 0:
        return "/usr/bin/python3"
    return os.path.realpath(sys.executable)
