"""The forms in which programs call a shell."""

import pytest

from ringfence.agents.shell_words import parse
from ringfence.errors import InvalidArgument


@pytest.mark.parametrize(
    ("given", "words", "token"),
    [
        (["-c", "ls | wc"], ("ls | wc",), ""),
        (["-lc", "ls"], ("ls",), ""),
        (["-l", "-i", "-c", "ls"], ("ls",), ""),
        (["--norc", "-c", "ls"], ("ls",), ""),
        (["-ec", "ls"], ("set -e; ls",), ""),
        (["-e", "-u", "-c", "ls"], ("set -eu; ls",), ""),
        (["-c", "echo $0 $1", "name", "one"], ("/bin/sh", "-c", "echo $0 $1", "name", "one"), ""),
        (["echo a b | cat"], ("echo a b | cat",), ""),
        (["--", "-odd"], ("-odd",), ""),
        (["git", "log", "-c", "x"], ("git", "log", "-c", "x"), ""),
        (["--token", "T", "-c", "ls"], ("ls",), "T"),
        ([], (), ""),
    ],
)
def test_what_is_meant(given: list[str], words: tuple[str, ...], token: str) -> None:
    call = parse(given)

    assert (call.words, call.token) == (words, token)


@pytest.mark.parametrize("given", [["-c"], ["--token"], ["--unknown", "x"], ["-Z", "x"], ["-o", "errexit", "-c", "ls"]])
def test_what_makes_no_sense_is_no_command(given: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        parse(given)
