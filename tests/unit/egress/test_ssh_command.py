"""What may be asked for by SSH is one of git's services on one repository, and nothing that could be read otherwise."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.ssh.command import BadCommand, is_protocol, read_command
from ringfence.egress.ssh.greeting import BANNER, refusal


@pytest.mark.parametrize(
    ("text", "method", "path", "line"),
    [
        ("git-upload-pack 'org/repo.git'", "GIT-UPLOAD-PACK", "/org/repo", "git-upload-pack 'org/repo.git'"),
        ("git upload-pack '/org/repo'", "GIT-UPLOAD-PACK", "/org/repo", "git-upload-pack '/org/repo'"),
        ("git-receive-pack org/repo/", "GIT-RECEIVE-PACK", "/org/repo", "git-receive-pack 'org/repo/'"),
        ("git-upload-archive '~me/repo'", "GIT-UPLOAD-ARCHIVE", "/~me/repo", "git-upload-archive '~me/repo'"),
    ],
)
def test_git_is_understood(text: str, method: str, path: str, line: str) -> None:
    command = read_command(text)

    assert (command.method, command.path, command.line) == (method, path, line)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "git",
        "git-shell -c id",
        "git-upload-pack",
        "git-upload-pack 'a' 'b'",
        "git-upload-pack --upload-pack=id 'a'",
        "git-upload-pack -- 'a'",
        "git-upload-pack 'a'; id",
        "git-upload-pack 'a' && id",
        "git-upload-pack '$(id)'",
        "git-upload-pack 'a`id`'",
        "git-upload-pack 'a\nid'",
        "git-upload-pack '../a'",
        "git-upload-pack 'a/../b'",
        "git-upload-pack 'a//b'",
        "git-upload-pack '//a'",
        "git-upload-pack 'a/.'",
        "git-upload-pack ''",
        "git-upload-pack '/'",
        'git-upload-pack "a\'b"',
        "git-upload-pack 'unclosed",
        "git-lfs-authenticate 'a' download",
        "GIT-UPLOAD-PACK 'a'",
        "git-upload-pack 'r\u00e9po'",
    ],
)
def test_all_else_is_refused(text: str) -> None:
    with pytest.raises(BadCommand):
        read_command(text)


@given(st.text(max_size=40), st.sampled_from(("git-upload-pack {}", "git-receive-pack '{}'", "{}")))
def test_what_goes_on_is_two_words_whatever_came(text: str, form: str) -> None:
    try:
        command = read_command(form.format(text))
    except BadCommand:
        return

    assert shlex.split(command.line) == [command.method.lower(), command.repository]
    assert not set(command.line) & set('$`"\\;&|<>\n*?(){}')
    assert ".." not in command.path.split("/")


def test_only_gits_own_words_are_a_protocol() -> None:
    assert is_protocol("version=2")
    assert is_protocol("version=2:agent=git")
    assert not is_protocol("version=2\nid")
    assert not is_protocol("$(id)")


def test_a_refusal_is_a_packet_that_says_why() -> None:
    for length in range(1, 40):
        said = refusal("R" * length)

        packet = said.removeprefix(BANNER)
        assert int.from_bytes(packet[:4], "big") == len(packet) - 4
        assert len(packet) % 8 == 0
        assert packet[4] >= 4
        assert b"R" * length in packet
