"""The sandbox-exec profile, by its text and by what a small reader of profiles decides from it. Never run on a Mac."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.confinement.macos.seatbelt import SANDBOX_EXEC, profile, wrap, wrapped
from ringfence.errors import InvalidArgument
from ringfence.policy.defaults import BLACKLIST, PROTECTED
from ringfence.policy.globs import PathRules, escape
from ringfence.values.grant import Grant
from tests.support.sbpl import decide, parse

pytestmark = pytest.mark.req("A9")

WORK = "/Users/u/work"


def a_grant(
    *,
    workspace: str = WORK,
    denied: Iterable[str] = BLACKLIST,
    readable: Iterable[str] = (),
    protected: Iterable[str] = PROTECTED,
    read_outside: bool = False,
) -> Grant:
    return Grant(
        workspace=Path(workspace),
        readable=tuple(map(Path, readable)),
        denied=tuple(row.replace("~", "/Users/u") for row in denied),
        protected=tuple(protected),
        read_outside=read_outside,
    )


def test_everything_is_denied_before_anything_is_allowed() -> None:
    assert parse(profile(a_grant()))[:2] == [["version", "1"], ["deny", "default"]]


def test_nothing_is_allowed_after_the_first_denial_of_the_network() -> None:
    forms = parse(profile(a_grant()))
    later = forms[forms.index(["deny", "network*"]) :]

    assert {form[0] for form in later} == {"deny"}


@pytest.mark.parametrize("operation", ["network-outbound", "network-inbound", "network-bind", "system-socket"])
def test_there_is_no_network(operation: str) -> None:
    assert decide(profile(a_grant()), operation, "/private/var/run/mDNSResponder") == "deny"


def test_a_granted_path_is_read_and_not_written() -> None:
    text = profile(a_grant(readable=["/Users/u/.pyenv"]))

    assert decide(text, "file-read-data", "/Users/u/.pyenv/bin/python") == "allow"
    assert decide(text, "process-exec", "/Users/u/.pyenv/bin/python") == "allow"
    assert decide(text, "file-write-data", "/Users/u/.pyenv/bin/python") == "deny"
    assert decide(text, "file-read-data", "/Users/u/.pyenvx") == "deny"


def test_directories_above_the_workspace_can_be_passed_but_not_listed() -> None:
    text = profile(a_grant())

    assert decide(text, "file-read-metadata", "/Users/u") == "allow"
    assert decide(text, "file-read-data", "/Users/u") == "deny"


def test_reading_outside_is_reading_only_and_the_blacklist_still_holds() -> None:
    text = profile(a_grant(read_outside=True))

    assert decide(text, "file-read-data", "/Users/u/notes") == "allow"
    assert decide(text, "file-write-data", "/Users/u/notes") == "deny"
    assert decide(text, "file-read-data", "/Users/u/.ssh/id_rsa") == "deny"
    assert decide(text, "network-outbound", "") == "deny"


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    "path", ["/private/etc/passwd", "/etc/passwd", f"{WORK}/a/.env", f"{WORK}/secrets.json", "/Users/u/.ssh/x"]
)
@pytest.mark.parametrize("operation", ["file-read-data", "file-read-metadata", "file-write-create", "process-exec"])
def test_the_blacklist_beats_every_grant(path: str, operation: str) -> None:
    granted = a_grant(readable=["/"])

    assert decide(profile(granted), operation, path) == "deny"
    assert decide(profile(a_grant(readable=["/"], denied=())), "file-read-data", path) == "allow"


def test_another_case_of_the_letters_is_denied_too_since_the_file_system_takes_it_for_the_same_name() -> None:
    text = profile(a_grant())

    assert decide(text, "file-write-create", f"{WORK}/.ENV") == "deny"
    assert decide(text, "file-write-create", f"{WORK}/.Git/Hooks/pre-commit") == "deny"


def test_both_forms_of_an_accented_letter_are_denied() -> None:
    text = profile(a_grant(denied=["**/cl\u00e9s"]))

    assert decide(text, "file-read-data", f"{WORK}/cl\u00e9s") == "deny"
    assert decide(text, "file-read-data", f"{WORK}/cle\u0301s") == "deny"


@pytest.mark.parametrize("path", PROTECTED)
def test_protected_paths_are_read_and_neither_written_nor_made(path: str) -> None:
    text = profile(a_grant())

    assert decide(text, "file-read-data", f"{WORK}/{path}") == "allow"
    assert decide(text, "file-write-create", f"{WORK}/{path}") == "deny"
    assert decide(text, "file-write-data", f"{WORK}/{path}/x") == "deny"
    assert decide(profile(a_grant(protected=())), "file-write-create", f"{WORK}/{path}") == "allow"


def test_git_can_commit() -> None:
    assert decide(profile(a_grant()), "file-write-create", f"{WORK}/.git/index.lock") == "allow"


def test_what_lies_above_a_denied_path_cannot_be_moved_aside() -> None:
    text = profile(a_grant(denied=[f"{WORK}/a/b/key", "**/c/key"]))

    for above in (WORK, f"{WORK}/.git", f"{WORK}/a", f"{WORK}/a/b", f"{WORK}/x/c"):
        assert decide(text, "file-write-unlink", above) == "deny", above
    assert decide(text, "file-write-unlink", f"{WORK}/x") == "allow"


def test_no_program_can_be_made_set_uid() -> None:
    assert decide(profile(a_grant()), "file-write-setugid", f"{WORK}/a") == "deny"


def test_arguments_of_other_processes_cannot_be_asked_for() -> None:
    assert "procargs" not in profile(a_grant())
    assert "(allow sysctl-read)" not in profile(a_grant())
    assert "(allow mach-lookup)" not in profile(a_grant())


HOSTILE = [
    '/w") (allow default) (subpath "',
    "/w\\",
    '/w\\") (allow network*) ;',
    "/w\n(allow default)",
    "/w;x",
    "/w\r\x1b[2J",
    "/w)(",
    "/w[1]*?",
    "/w#|x|#",
    "/w\udcff",
    "/w\u00e9",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_rules_cannot_be_injected_through_a_path(path: str) -> None:
    ordinary = parse(profile(a_grant(workspace="/w", readable=["/w"], denied=["/w/k"])))
    text = profile(a_grant(workspace=path, readable=[path], denied=[f"{path}/k"]))

    assert [head(form) for form in parse(text)] == [head(form) for form in ordinary]
    assert decide(text, "file-write-data", f"{path}/a") == "allow"
    assert decide(text, "file-read-data", f"{path}/k") == "deny"
    assert decide(text, "network-outbound", "") == "deny"


def head(form: object) -> object:
    """A form without its filters, whose number may differ with what a path holds."""
    assert isinstance(form, list)
    return [word for word in form if isinstance(word, str)]


TEXTS = st.text(st.sampled_from('aB."\\\n;()[]*?^$|#-! \u00e9\udcff'), min_size=1, max_size=6)
NAMES = TEXTS.filter(lambda name: name not in (".", ".."))


@given(st.lists(NAMES, min_size=1, max_size=3), st.sampled_from(["/w/", "**/", "/w/**/"]))
def test_whatever_a_row_hides_the_profile_denies(names: list[str], start: str) -> None:
    path = "/w/" + "/".join(names)
    row = start + "/".join(names)
    try:
        rows = [row, start + "/".join(map(escape, names))]
        rules = PathRules(rows)
    except InvalidArgument:
        return

    assert rules.matches(path)
    for each in rows:
        text = profile(a_grant(workspace="/w", denied=[each], protected=()))
        assert decide(text, "file-read-data", path) == "deny"


@pytest.mark.parametrize(
    ("row", "path"),
    [("/w/k[0-9a-c]", "/w/kB"), ("/w/k[!a]x", "/w/k\u20acx"), ("/w/k?", "/w/k\u20ac"), ("/w/*.p[ek]m", "/w/.x.pem/y")],
)
def test_classes_and_wildcards_deny_what_they_match(row: str, path: str) -> None:
    assert decide(profile(a_grant(workspace="/w", denied=[row])), "file-read-data", path) == "deny"


def test_a_nul_character_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        profile(a_grant(readable=["/a\0b"]))


def test_a_row_that_was_not_expanded_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not expanded"):
        profile(Grant(workspace=Path(WORK), denied=("~/.ssh",)))


def test_options_cannot_be_injected_through_the_command() -> None:
    argv, text = wrap(("-p", "(version 1)(allow default)", "sh"), a_grant())

    assert argv == (SANDBOX_EXEC, "-p", text, "--", "-p", "(version 1)(allow default)", "sh")


def test_the_profile_file_is_private_and_removed() -> None:
    with wrapped(("true",), a_grant()) as argv:
        path = Path(argv[2])
        assert argv == (SANDBOX_EXEC, "-f", str(path), "--", "true")
        assert path.read_bytes() == os.fsencode(profile(a_grant()))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        granted = profile(a_grant(workspace=str(path.parent)))
        assert decide(granted, "file-write-data", str(path)) == "deny"
        assert decide(granted, "file-write-data", str(path.parent / "other")) == "allow"

    assert not path.exists()


def test_the_profile_file_is_removed_when_the_run_fails() -> None:
    with pytest.raises(KeyboardInterrupt), wrapped(("true",), a_grant()) as argv:
        path = Path(argv[2])
        raise KeyboardInterrupt

    assert not path.exists()


def test_it_does_not_matter_if_somebody_else_removed_the_profile_file() -> None:
    with wrapped(("true",), a_grant()) as argv:
        Path(argv[2]).unlink()
