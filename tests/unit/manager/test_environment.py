"""The environment: what comes along, and that nothing else does."""

from pathlib import Path

import pytest

from ringfence.manager.environment import kept

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "GITHUB_TOKEN": "hunter2",
    "SSH_AUTH_SOCK": "/run/agent",
    "LD_PRELOAD": "/evil.so",
    "PYTHONPATH": "/x",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    "HTTP_PROXY": "http://user:hunter2@proxy",
    "GIT_ASKPASS": "/bin/askpass",
    "GIT_CONFIG_COUNT": "1",
}
"""No list of what is refused is ever whole; these stand for everything that is not listed as kept."""


@pytest.mark.req("A4")
def test_locale_zone_and_terminal_come_along_and_nothing_else(tmp_path: Path) -> None:
    wanted = {"LANG": "de_DE.UTF-8", "LC_TIME": "C", "TZ": "Europe/Berlin", "TERM": "xterm", "NO_COLOR": "1"}

    assert kept(wanted | SECRETS, str(tmp_path)) == wanted


def config(home: Path, text: str, name: str = ".gitconfig") -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


def identity(home: Path, **environ: str) -> tuple[str | None, str | None]:
    found = kept(environ, str(home))
    assert found.get("GIT_AUTHOR_NAME") == found.get("GIT_COMMITTER_NAME")
    return found.get("GIT_AUTHOR_NAME"), found.get("GIT_AUTHOR_EMAIL")


@pytest.mark.parametrize(
    "text",
    [
        "[user]\n\tname = Ann Lee\n\temail = ann@example.org\n",
        "[user]\nname=Ann Lee\nemail=ann@example.org\n",
        '# mine\n[core]\n\tpager = less\n[user]\n\tname = "Ann Lee"\n\temail = "ann@example.org"\n',
        "[user]\n\tname = nobody\n[user]\n\tname = Ann Lee\n\temail = ann@example.org\n",
        '[url "git@x:"]\n\tinsteadOf = https://x/\n[alias]\n\tst = status\n[user]\n\tsigningkey\n'
        "\tname = Ann Lee\n\temail = ann@example.org\n",
    ],
)
def test_git_s_name_and_mail_are_read_as_git_writes_them(tmp_path: Path, text: str) -> None:
    config(tmp_path, text)

    assert identity(tmp_path) == ("Ann Lee", "ann@example.org")


@pytest.mark.parametrize("text", ["", "no section\n", "[user\nname = x\n", "[core]\nname = x\n", "[user]\n\tname =\n"])
def test_a_file_without_a_name_gives_none(tmp_path: Path, text: str) -> None:
    config(tmp_path, text)

    assert identity(tmp_path) == (None, None)


def test_a_file_that_is_no_utf8_gives_none(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_bytes(b"[user]\n\tname = \xff\xfe\n")

    assert identity(tmp_path) == (None, None)


def test_a_home_without_git_gives_none(tmp_path: Path) -> None:
    assert identity(tmp_path) == (None, None)


def test_credentials_in_the_file_stay_outside(tmp_path: Path) -> None:
    config(
        tmp_path,
        '[user]\n\tname = Ann\n[credential]\n\thelper = store\n[http]\n\textraheader = "Authorization: hunter2"\n',
    )

    assert "hunter2" not in str(kept({}, str(tmp_path)))


def test_the_environment_wins_over_the_file_and_the_home_s_file_over_the_other(tmp_path: Path) -> None:
    config(tmp_path, "[user]\n\tname = Xdg\n\temail = x@d.g\n", ".config/git/config")
    config(tmp_path, "[user]\n\tname = Home\n")

    assert identity(tmp_path) == ("Home", "x@d.g")
    assert kept({"GIT_AUTHOR_NAME": "Env"}, str(tmp_path))["GIT_AUTHOR_NAME"] == "Env"
