"""The git server of the tests works for real git, and only for whoever has the token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.egress.secrets.git_remotes import git_variables
from ringfence.values.network import NetworkGrant, NetworkRule, SecretGrant
from tests.support.certificates import TestAuthority
from tests.support.git_server import GitServer, git_server, run_git

TOKEN = "ghp_" + "x1Y2" * 9


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


@pytest.fixture
def server(tmp_path: Path, authority: TestAuthority) -> Iterator[GitServer]:
    with git_server(tmp_path / "served", authority.server_context("localhost", "127.0.0.1"), TOKEN) as running:
        yield running


def test_git_clones_and_pushes_with_the_token_in_basic(
    server: GitServer, authority: TestAuthority, tmp_path: Path
) -> None:
    server.make_repository("one.git")
    grant = SecretGrant(name="gh", hosts=("localhost",), placeholder=TOKEN)
    variables = dict(git_variables(NetworkGrant(rules=(NetworkRule(host="localhost"),), secrets=(grant,))))
    # The server has a port of its own; what git is told is for 443.
    variables = {
        name: value.replace("//localhost/", f"//localhost:{server.port}/") for name, value in variables.items()
    }
    env = {"GIT_SSL_CAINFO": str(authority.bundle), **variables}
    clone = tmp_path / "clone"

    run_git("clone", "-q", f"https://localhost:{server.port}/one.git", str(clone), env=env)
    run_git("-C", str(clone), "commit", "-q", "--allow-empty", "-m", "first", env=env)
    run_git("-C", str(clone), "push", "-q", "origin", "HEAD:main", env=env)
    again = tmp_path / "again"
    # By SSH as it is written, by HTTPS in fact: the rewriting is git's own.
    rewriting = {**env, "GIT_CONFIG_VALUE_0": "git@localhost:"}
    run_git("clone", "-q", "git@localhost:one.git", str(again), env=rewriting)

    assert run_git("-C", str(again), "log", "--format=%s").strip() == "first"
    assert {path.partition("?")[0] for _, path, _ in server.asked} >= {
        "/one.git/info/refs",
        "/one.git/git-upload-pack",
        "/one.git/git-receive-pack",
    }


def test_git_without_the_token_is_refused(server: GitServer, authority: TestAuthority, tmp_path: Path) -> None:
    server.make_repository("one.git")

    with pytest.raises(RuntimeError):
        run_git(
            "clone",
            f"https://localhost:{server.port}/one.git",
            str(tmp_path / "clone"),
            env={"GIT_SSL_CAINFO": str(authority.bundle)},
        )
    assert {given for _, _, given in server.asked} == {""}
