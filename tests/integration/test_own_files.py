"""What Ringfence itself reads cannot be written from inside, wherever it lies: else a box could widen the next run."""

import json
import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import ringfence
from ringfence import Sandbox
from ringfence.confinement.linux import own, view
from ringfence.errors import PathAccessDenied
from ringfence.manager.workspaces import Workspaces
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A1", "A3")

WIDER = json.dumps({"filesystem": {"allowReadOutside": True, "whitelist": ["/opt"]}})


@pytest.fixture(params=["bwrap", "unshare"], autouse=True)
def wall(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", request.param)


def attempts(name: str) -> str:
    """Every way to put something else where a file is, or is looked for."""
    return (
        f"printf %s '{WIDER}' > evil; cat evil > {name}; cp -f evil {name}; cp evil b; mv -f b {name}; rm -f b; "
        f"ln -sf $PWD/evil {name}; ln -f evil {name}; rm -rf {name}; mkdir -p $(dirname {name}); cat evil > {name}; "
        f"d=$(dirname {name}); [ $d = . ] || (mv $d moved; mkdir -p $d; cat evil > {name}); truncate -s 0 {name}; "
        f"chmod 000 {name}; rm -f evil; echo tried"
    )


def content(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


ConfigPlace = Callable[[Place, pytest.MonkeyPatch], tuple[str, dict[str, object]]]


def named_by_option(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, object]]:
    return "sandbox.json", {"config": place.workspace / "sandbox.json"}


def named_by_variable(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, object]]:
    monkeypatch.setenv("RINGFENCE_SANDBOX_CONFIG", str(place.workspace / "conf" / "box.json"))
    return "conf/box.json", {}


def named_by_its_alias(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, object]]:
    monkeypatch.setenv("SYNAPSE_SANDBOX_CONFIG", str(place.workspace / "conf" / "box.json"))
    return "conf/box.json", {}


def named_through_a_link_of_the_home(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, object]]:
    """As people do whose settings lie in a repository."""
    (place.workspace / "dotfiles" / "ringfence").mkdir(parents=True)
    (place.home / ".ringfence").symlink_to(place.workspace / "dotfiles" / "ringfence")
    return "dotfiles/ringfence/sandbox.json", {}


def the_second_usual_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, object]]:
    (place.workspace / "synapse").mkdir(parents=True)
    (place.home / ".synapse").symlink_to(place.workspace / "synapse")
    return "synapse/sandbox.json", {}


CONFIGS = [
    named_by_option,
    named_by_variable,
    named_by_its_alias,
    named_through_a_link_of_the_home,
    the_second_usual_place,
]


@pytest.mark.parametrize("where", CONFIGS)
def test_a_configuration_in_the_workspace_is_read_and_not_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: ConfigPlace
) -> None:
    name, options = where(place, monkeypatch)
    path = place.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    mode = path.stat().st_mode

    done = place.run(f"cat {name}; {attempts(name)}", **options)

    assert done.stdout == "{}\ntried\n"
    assert content(path) == "{}\n"
    assert path.stat().st_mode == mode
    assert {f"protected {name}"} <= {violation.rule for violation in done.violations}


@pytest.mark.parametrize("where", CONFIGS[3:])
def test_a_configuration_that_is_looked_for_and_not_there_is_not_made(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: ConfigPlace
) -> None:
    name, options = where(place, monkeypatch)

    done = place.run(attempts(name), **options)

    assert done.stdout == "tried\n"
    assert not os.path.lexists(place.workspace / name)
    assert place.names() & {name, "moved"} == set()


@pytest.mark.parametrize("where", CONFIGS)
def test_the_same_program_without_a_wall_widens_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: ConfigPlace
) -> None:
    name, _ = where(place, monkeypatch)
    (place.workspace / name).parent.mkdir(parents=True, exist_ok=True)

    place.host(f"echo '{WIDER}' > {name}")

    assert content(place.workspace / name) == f"{WIDER}\n"


def test_a_directory_on_the_way_that_is_missing_is_not_made(place: Place) -> None:
    """A link into the workspace that leads to nothing yet."""
    (place.home / ".synapse").symlink_to(place.workspace / "made" / "later")

    place.run(attempts("made/later/sandbox.json"))

    assert not (place.workspace / "made").exists()
    place.host("mkdir -p made/later")


def test_a_link_on_the_way_is_not_replaced(place: Place) -> None:
    real = place.home / "real"
    real.mkdir()
    (real / "box.json").write_text("{}\n")
    (place.workspace / "conf").symlink_to(real)

    done = place.run(
        "rm -f conf; mv conf c2; mkdir conf; ln -sfn $PWD conf; echo tried",
        config=place.workspace / "conf" / "box.json",
    )

    assert done.stdout == "tried\n"
    assert os.readlink(place.workspace / "conf") == str(real)


def test_while_a_box_holds_its_place_another_run_finds_no_configuration(place: Place) -> None:
    """A placeholder is no configuration that cannot be read. There is one where nobody looks at calls."""
    (place.workspace / "synapse").mkdir()
    (place.home / ".synapse").symlink_to(place.workspace / "synapse")

    async def work(box: Sandbox) -> None:
        await box.shell("true")
        assert os.path.lexists(place.workspace / "synapse" / "sandbox.json")
        other = ringfence.Sandbox(workspace=place.workspace)
        assert other.notes == ()
        await other.close()

    place.in_box(work, trace="off")


def test_a_configuration_that_is_a_pipe_keeps_nobody(place: Place) -> None:
    os.mkfifo(place.workspace / "box.json")

    with pytest.warns(ringfence.RingfenceWarning, match="defaults are in force"):
        done = place.run("echo ran", config=place.workspace / "box.json")

    assert done.stdout == "ran\n"


POLICY = "policies: {default: {denied_commands: [id]}}\n"


def test_a_policy_and_its_links_are_not_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.workspace / "rules").mkdir()
    for name in ("rules/org.yaml", "rules/project.yaml"):
        (place.workspace / name).write_text(POLICY)
    (place.workspace / "policy.yaml").symlink_to("rules/project.yaml")
    monkeypatch.setenv("RINGFENCE_POLICY", str(place.workspace / "rules" / "org.yaml"))

    place.run(
        "; ".join(map(attempts, ("rules/org.yaml", "rules/project.yaml", "policy.yaml"))),
        policy=place.workspace / "policy.yaml",
    )

    assert content(place.workspace / "rules" / "org.yaml") == POLICY
    assert content(place.workspace / "rules" / "project.yaml") == POLICY
    assert os.readlink(place.workspace / "policy.yaml") == "rules/project.yaml"


def test_a_policy_that_was_never_a_file_protects_no_name(place: Place) -> None:
    policy = ringfence.PolicyEngine.from_text(POLICY, source="policy")

    assert place.run("echo mine > policy; cat policy", policy=policy).stdout == "mine\n"


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("RINGFENCE_AUDIT_KEY", "keys/journal"),
        ("RINGFENCE_BWRAP_PATH", "tools/bwrap"),
        ("RINGFENCE_RUNSC_PATH", "tools/runsc"),
    ],
)
def test_a_file_that_a_variable_names_is_not_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    path = place.workspace / name
    path.parent.mkdir()
    if variable == "RINGFENCE_AUDIT_KEY":
        ringfence_keygen(path)
    else:
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        if variable == "RINGFENCE_BWRAP_PATH":  # with that wall it would have to be a real one
            monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "unshare")
    before = path.read_bytes()
    monkeypatch.setenv(variable, str(path))

    done = place.run(attempts(name))

    assert done.stdout.endswith("tried\n")
    assert path.read_bytes() == before


def ringfence_keygen(path: Path) -> None:
    from ringfence.audit.signing import make_keys  # its library is optional

    make_keys(path)


@pytest.mark.parametrize("name", ["STATE", "SHADOWS", "SNAPSHOTS"])
@pytest.mark.parametrize("is_there", [True, False])
def test_what_ringfence_keeps_for_itself_is_not_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
) -> None:
    directory = place.workspace / "var" / name.lower()
    if is_there:
        directory.mkdir(parents=True)
    monkeypatch.setenv(f"RINGFENCE_{name}_DIR", str(directory))

    place.run(f"mkdir -p var/{name.lower()}; echo forged > var/{name.lower()}/forged; mv var v2; rm -rf var")

    assert directory.is_dir()
    assert not (directory / "forged").exists()


# --- what runs us -----------------------------------------------------------------------------------------------------


def test_what_runs_us_is_found_with_its_base_and_its_library() -> None:
    code = own.own_code()

    assert os.path.realpath(sys.prefix) in code
    assert os.path.realpath(sys.base_prefix) in code
    assert os.path.dirname(os.path.realpath(ringfence.__file__)) in code
    assert any(os.path.exists(os.path.join(path, "os.py")) for path in code)
    assert all(os.path.lexists(path) for path in code)


def test_an_interpreter_that_is_started_by_a_path_with_dots_is_outside_the_workspace(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `../env/bin/python script.py` is: the path that Python tells begins with the workspace's."""
    dotted = f"{place.workspace}/../{os.path.relpath(sys.executable, place.workspace.parent)}"
    monkeypatch.setattr(sys, "executable", dotted)
    own.own_code.cache_clear()
    try:
        assert not any(".." in path.split("/") for path in own.own_code())
        assert place.run("echo hi").stdout == "hi\n"
    finally:
        own.own_code.cache_clear()


def test_an_environment_that_runs_us_says_so_and_stays_as_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = place.workspace / ".venv"
    venv.create(ours, with_pip=False)
    monkeypatch.setattr(own, "own_code", lambda: (str(ours),))
    monkeypatch.setattr(view, "own_code", lambda: (str(ours),))

    done = place.run("echo evil > .venv/lib/evil.pth; mv .venv v2; .venv/bin/python -c 'print(1)'; echo tried")

    assert done.stdout.endswith("tried\n")
    assert not (ours / "lib" / "evil.pth").exists()
    assert done.wall is not None
    assert any(f"runs from {ours}" in note for note in done.wall.notes)


def test_an_environment_of_the_project_s_own_is_written_as_ever(place: Place) -> None:
    venv.create(place.workspace / ".venv", with_pip=False)

    done = place.run("echo x > .venv/lib/module.py && touch .venv/bin/tool && mv .venv v2 && echo fine")

    assert done.stdout == "fine\n"
    assert done.wall is not None and not any("runs from" in note for note in done.wall.notes)


def test_a_place_for_modules_that_is_writable_is_told_of(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.workspace / "src").mkdir()
    monkeypatch.syspath_prepend(str(place.workspace / "src"))

    done = place.run("echo x > src/module.py && echo fine")

    assert done.stdout == "fine\n"
    assert done.wall is not None
    assert any(f"looks for modules in {place.workspace / 'src'}" in note for note in done.wall.notes)


# --- the other doors --------------------------------------------------------------------------------------------------


def test_the_file_api_writes_none_of_it_either(place: Place) -> None:
    (place.workspace / "box.json").write_text("{}\n")
    with place.box_closed(config=place.workspace / "box.json") as box:
        assert box.check_path("box.json", write=True).rule == "protected box.json"
        with box.host_files() as files:
            assert files.read("box.json") == b"{}\n"
            with pytest.raises(PathAccessDenied):
                files.write("box.json", WIDER)
            files.write("sub/box.json", "another one")

    async def inside(box: Sandbox) -> None:
        assert await box.read_file("box.json") == b"{}\n"
        with pytest.raises(PathAccessDenied):
            await box.write_file("box.json", WIDER)
        await box.write_file("sub/again.json", "another one")

    place.in_box(inside, config=place.workspace / "box.json")

    assert content(place.workspace / "box.json") == "{}\n"


def test_a_shadow_does_not_carry_it_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.workspace / "box.json").write_text("{}\n")
    monkeypatch.setenv("RINGFENCE_SANDBOX_CONFIG", str(place.workspace / "box.json"))
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        place.run(f"echo '{WIDER}' > box.json; echo x > other", shadow=shadow)
        outcome = workspaces.commit(shadow)

    assert content(place.workspace / "box.json") == "{}\n", outcome
    assert content(place.workspace / "other") == "x\n"
