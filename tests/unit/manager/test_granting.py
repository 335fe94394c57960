"""Granting: what a caller asks for is looked up and checked before anything is granted."""

import os
from pathlib import Path

import pytest

from ringfence.errors import InvalidArgument, NotADirectory, NotFound, PathAccessDenied, PermissionDenied
from ringfence.manager.granting import make_grant
from ringfence.manager.hiding import Caller
from ringfence.manager.options import REQUIRED, SandboxOptions
from ringfence.policy.config import SandboxConfig
from ringfence.policy.defaults import PROTECTED, UNMADE
from ringfence.policy.globs import compiled
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    return Caller({"HOME": str(home), "DATA": str(tmp_path / "data")}, str(home), home / ".ringfence" / "state")


def grant(caller: Caller, config: SandboxConfig | None = None, **wish: object) -> Grant:
    wish.setdefault("workspace", os.path.join(caller.home, "project"))
    made, _ = make_grant(SandboxOptions(**wish), config or SandboxConfig(), caller, {})  # type: ignore[arg-type]
    return made


@pytest.mark.req("A4")
def test_a_project_below_the_home_is_granted_with_everything_that_protects_it(caller: Caller) -> None:
    made = grant(caller)

    assert made.workspace == Path(caller.home, "project")
    assert (made.writable, made.readable, made.read_outside) == ((), (), False)
    assert (made.protected, made.requires, made.limits) == ((*PROTECTED, *UNMADE), REQUIRED, Limits())


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    "given", ["{home}", "{home}/", "{home}/..", "{home}/project/..", "/", "//", "/tmp", "/usr", "/etc", "/var"]
)
@pytest.mark.parametrize("where", ["workspace", "write"])
def test_a_home_a_root_or_a_system_directory_cannot_be_made_writable(caller: Caller, given: str, where: str) -> None:
    path = given.format(home=caller.home)

    with pytest.raises(PathAccessDenied, match="must not be writable") as caught:
        grant(caller, **{where: path if where == "workspace" else (path,)})

    assert (caught.value.rule, bool(caught.value.hint)) == ("built-in", True)


@pytest.mark.parametrize("given", ["/proc/self", "/sys/kernel", "/dev/shm"])
def test_what_belongs_to_the_kernel_is_not_granted(caller: Caller, given: str) -> None:
    with pytest.raises(PathAccessDenied):
        grant(caller, write=(given,))
    with pytest.raises(PathAccessDenied):
        grant(caller, read=(given,))


@pytest.mark.req("A4")
@pytest.mark.parametrize("end", ["", "/"])
def test_a_workspace_that_is_a_link_is_refused_and_the_directory_itself_is_not(caller: Caller, end: str) -> None:
    link = Path(caller.home, "link")
    link.symlink_to("project")

    with pytest.raises(PathAccessDenied, match="a link") as caught:
        grant(caller, workspace=f"{link}{end}")

    assert caught.value.hint.endswith(str(Path(caller.home, "project")))
    assert grant(caller, workspace=Path(caller.home, "project")).workspace == Path(caller.home, "project")


def test_a_link_on_the_way_is_resolved(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(caller.home)

    assert grant(caller, workspace=tmp_path / "way" / "project").workspace == Path(caller.home, "project")


def test_a_link_cannot_smuggle_the_home_in(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(caller.home)

    with pytest.raises(PathAccessDenied, match="must not be writable"):
        grant(caller, write=(tmp_path / "way",))


@pytest.mark.req("A3")
@pytest.mark.parametrize("where", ["workspace", "write", "read"])
def test_a_blacklisted_directory_is_not_granted_and_another_is(caller: Caller, where: str) -> None:
    for name in (".ssh", "ssh"):
        Path(caller.home, name, "deep").mkdir(parents=True)

    def given(name: str) -> Grant:
        path = os.path.join(caller.home, name, "deep")
        return grant(caller, **{where: path if where == "workspace" else (path,)})

    with pytest.raises(PathAccessDenied, match="blacklist") as caught:
        given(".ssh")
    assert caught.value.rule.startswith("filesystem.blacklist")
    assert given("ssh")


@pytest.mark.req("A3")
def test_a_link_to_something_blacklisted_is_refused_by_where_it_leads(caller: Caller) -> None:
    Path(caller.home, ".ssh").mkdir()
    Path(caller.home, "keys").symlink_to(".ssh")

    with pytest.raises(PathAccessDenied, match="blacklist"):
        grant(caller, read=(os.path.join(caller.home, "keys"),))


def test_a_missing_directory_is_named(caller: Caller) -> None:
    with pytest.raises(NotFound, match="No such file") as caught:
        grant(caller, workspace=os.path.join(caller.home, "nowhere"))

    assert caught.value.path.endswith("/nowhere")


def test_an_unreadable_directory_is_refused(caller: Caller) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    Path(caller.home, "locked").mkdir(mode=0)

    with pytest.raises(PermissionDenied, match="Permission denied"):
        grant(caller, workspace=os.path.join(caller.home, "locked"))


def test_a_file_cannot_be_made_writable_but_it_can_be_read(caller: Caller) -> None:
    file = Path(caller.home, "notes")
    file.touch()

    with pytest.raises(NotADirectory, match="not a directory"):
        grant(caller, workspace=file)
    with pytest.raises(NotADirectory, match="not a directory"):
        grant(caller, write=(file,))
    assert grant(caller, read=(file,)).readable == (file,)


@pytest.mark.parametrize("given", ["", "a\0b", "half \ud800 character"])
@pytest.mark.parametrize("where", ["workspace", "write", "read"])
def test_what_no_path_can_be_is_an_error_of_ours(caller: Caller, given: str, where: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be a path"):
        grant(caller, **{where: given if where == "workspace" else (given,)})


@pytest.mark.parametrize("name", ["new\nline", "quo'te\"", "st*r", "bl ank", "[x]", "--bind", "\udcff\udcfe", "ünï"])
@pytest.mark.parametrize("where", ["workspace", "write", "read"])
def test_a_directory_of_any_name_is_granted_under_that_very_name(caller: Caller, name: str, where: str) -> None:
    path = Path(caller.home, name)
    path.mkdir()

    made = grant(caller, **{where: path if where == "workspace" else (path,)})

    assert path in (made.workspace, *made.writable, *made.readable)


@pytest.mark.req("A3")
@pytest.mark.parametrize("name", ["state", "st[a]te", "st*te", "new\nline"])
def test_our_own_state_is_always_denied(caller: Caller, name: str) -> None:
    state = Path(caller.home, "project", name)
    made = grant(Caller(caller.environ, caller.home, state))

    assert compiled(made.denied).matches(str(state / "journal.jsonl")) is not None
    assert compiled(made.denied).matches(str(state) + "x") is None


@pytest.mark.req("A3")
def test_the_key_that_signs_the_journal_is_denied(caller: Caller) -> None:
    key = str(Path(caller.home, "project", "audit.key"))
    told = Caller({**caller.environ, "RINGFENCE_AUDIT_KEY": key}, caller.home, caller.state)

    assert compiled(grant(told).denied).matches(key) is not None
    assert compiled(grant(caller).denied).matches(key) is None


def test_the_state_directory_cannot_be_a_workspace(caller: Caller) -> None:
    caller.state.mkdir(parents=True)

    with pytest.raises(PathAccessDenied, match="blacklist"):
        grant(caller, workspace=caller.state)


@pytest.mark.req("A3")
def test_a_denied_link_also_denies_what_it_leads_to(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    Path(caller.home, ".ssh").symlink_to(tmp_path / "vault")

    assert compiled(grant(caller).denied).matches(str(tmp_path / "vault" / "id")) is not None


@pytest.mark.req("A4")
def test_the_whitelist_is_writable_with_home_and_variables_expanded(caller: Caller, tmp_path: Path) -> None:
    for path in (Path(caller.home, "cache"), tmp_path / "data"):
        path.mkdir()

    made = grant(caller, SandboxConfig(whitelist=("~/cache", "$DATA")))

    assert made.writable == (Path(caller.home, "cache"), tmp_path / "data")


@pytest.mark.req("A4")
def test_a_whitelist_entry_that_does_not_exist_is_left_out_with_a_note(caller: Caller) -> None:
    made, notes = make_grant(
        SandboxOptions(workspace=os.path.join(caller.home, "project")), SandboxConfig(whitelist=("~/gone",)), caller, {}
    )

    assert made.writable == ()
    assert len(notes) == 1 and "~/gone" in notes[0]


@pytest.mark.req("A4")
def test_reading_outside_gives_up_the_two_guarantees_that_it_contradicts_and_no_other(caller: Caller) -> None:
    made = grant(caller, SandboxConfig(allow_read_outside=True))

    assert made.read_outside
    assert REQUIRED - made.requires == {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN}


def test_what_is_asked_twice_is_granted_once(caller: Caller) -> None:
    project = os.path.join(caller.home, "project")
    Path(caller.home, "other").mkdir()
    other = os.path.join(caller.home, "other")

    made = grant(caller, write=(project, other, f"{other}/."), read=(other, other))

    assert (made.writable, made.readable) == ((Path(other),), (Path(other),))


def test_the_caller_s_own_variables_win_over_what_comes_along(caller: Caller) -> None:
    wish = SandboxOptions(workspace=os.path.join(caller.home, "project"), env=(("LANG", "de_DE"),))

    made, _ = make_grant(wish, SandboxConfig(), caller, {"LANG": "C", "TZ": "UTC"})

    assert dict(made.env) == {"LANG": "de_DE", "TZ": "UTC"}


@pytest.mark.req("B6")
def test_the_policy_s_cores_are_granted_as_they_are_and_none_without(caller: Caller) -> None:
    wish = SandboxOptions(workspace=os.path.join(caller.home, "project"))
    terms = effective((load_policy("policies: {default: {max_cpu: 0.5}}", "p.yaml"),), "shell_exec")

    held, _ = make_grant(wish, SandboxConfig(), caller, {}, terms)

    assert held.cores == 0.5 and grant(caller).cores is None
