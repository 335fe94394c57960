"""Input that makes no sense, or looks as if it did not: a clear error with its code, or it works; never half of either.

After each error nothing has run, nothing is left, and the next command works: `refused` holds all three.
"""

import errno
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ringfence
from ringfence import Limits, Refused, RingfenceError, RingfenceWarning, Sandbox, WrongType
from tests.integration.stage import SYSTEM_PATH, Place

pytestmark = pytest.mark.req("C10", "A8")


@contextmanager
def refused(place: Place, code: str, says: str) -> Iterator[None]:
    before = place.names()
    with pytest.raises(RingfenceError, match=says) as caught:
        yield
    assert caught.value.code == code
    assert caught.value.message
    assert place.names() == before, "something ran or was left"
    assert place.run("echo next").stdout == "next\n"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", "   ", "\n\t", [], [""]], ids=repr)
def test_an_empty_command_is_an_error(place: Place, command: str | list[str]) -> None:
    with refused(place, "command_not_allowed", "empty"):
        place.run(command)


@pytest.mark.parametrize("command", ["touch ran\0 more", ["touch", "ran\0x"], "\0"], ids=repr)
def test_a_nul_byte_in_the_command_is_an_error(place: Place, command: str | list[str]) -> None:
    with refused(place, "command_not_allowed", "NUL"):
        place.run(command)


@pytest.mark.parametrize("command", ["touch ran; echo \ud800", ["touch", "\udfff"]], ids=["shell", "argv"])
def test_half_a_character_that_stands_for_no_byte_is_an_error(place: Place, command: str | list[str]) -> None:
    with refused(place, "command_not_allowed", "unpaired surrogate"):
        place.run(command)


def test_half_a_character_that_stands_for_a_byte_works(place: Place) -> None:
    assert place.run("printf '\udcff' > '\udcfe'; cat '\udcfe'").stdout_bytes == b"\xff"
    assert os.listdir(os.fsencode(place.workspace)) == [b"\xfe"]


def test_a_megabyte_of_command_works(place: Place) -> None:
    text = "x" * 1_000_000

    done = place.run(f"a={text}; echo ${{#a}}; cat; exit 3", stdin=b"and stdin")

    assert (done.stdout, done.exit_code) == ("1000000\nand stdin", 3)


def test_a_megabyte_of_many_lines_works_and_faults_name_their_line(place: Place) -> None:
    lines = "echo line\n" * 100_000

    done = place.run(lines + "no-such-program\nexit 7\n")

    assert (done.stdout.count("line\n"), done.exit_code) == (100_000, 7)
    assert "line 100001" in done.stderr


def test_a_megabyte_of_multibyte_text_works(place: Place) -> None:
    assert place.run("a='" + "日" * 90_000 + "'; echo ${#a}").stdout == "90000\n"


def test_an_argument_larger_than_the_kernel_takes_is_an_error_that_says_so(place: Place) -> None:
    with refused(place, "spawn_failed", "Argument list too long"):
        place.run(["touch", "x" * 200_000])


@pytest.mark.parametrize("argv", [["/no/such/program"], ["no-such-program"]])
def test_a_program_that_is_not_there_is_an_error(place: Place, argv: list[str]) -> None:
    with refused(place, "spawn_failed", "No such file"):
        place.run(argv)


def test_a_program_that_is_no_program_is_an_error(place: Place) -> None:
    (place.workspace / "data").write_text("x")

    with refused(place, "spawn_failed", "Permission denied"):
        place.run(["./data"])


# --- the environment --------------------------------------------------------------------------------------------------


def test_ten_thousand_variables_work(place: Place) -> None:
    env = {f"VARIABLE_{n}": f"value {n}" for n in range(10_000)}

    assert place.run("env | grep -c ^VARIABLE_; echo $VARIABLE_9999", env=env).stdout == "10000\nvalue 9999\n"


def test_ten_thousand_variables_for_one_command_work(place: Place) -> None:
    async def work(box: Sandbox) -> list[str]:
        done = await box.shell("env | grep -c ^V_", env={f"V_{n}": "x" for n in range(10_000)})
        return [done.stdout, (await box.shell("env | grep -c ^V_")).stdout]

    assert place.in_box(work) == ["10000\n", "0\n"]


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}, {"A": "\ud800"}], ids=repr)
def test_a_variable_that_cannot_be_is_an_error(place: Place, env: dict[str, str]) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell("touch ran", env=env)

    with refused(place, "invalid_argument", "variable"):
        place.in_box(work)
    with refused(place, "invalid_argument", "variable"):
        place.run("touch ran", env=env)


def test_values_with_newlines_quotes_and_odd_bytes_work(place: Place) -> None:
    value = "a\nb'c\"$(touch ran)`x`*\udcff"

    assert place.run('printf %s "$V"', env={"V": value}).stdout_bytes == os.fsencode(value)
    assert place.names() == set()


def test_variables_of_the_loader_reach_the_command_and_not_our_own_processes(place: Place) -> None:
    assert place.run("echo $LD_PRELOAD", env={"LD_PRELOAD": "/nonexistent.so"}).stdout == "/nonexistent.so\n"


# --- where ------------------------------------------------------------------------------------------------------------


def test_a_cwd_that_is_not_there_is_an_error(place: Place) -> None:
    for cwd in ("missing", place.workspace / "missing", "/no/such"):
        with refused(place, "not_found", "No such file"):
            place.run("touch ran", cwd=cwd)


def test_a_cwd_that_is_a_file_or_a_loop_or_holds_a_nul_is_an_error(place: Place) -> None:
    (place.workspace / "file").touch()
    (place.workspace / "loop").symlink_to("loop")
    odd = {"file": "not_a_directory", "loop": "file_error", "a\0b": "invalid_argument", "x" * 5000: "file_error"}
    for cwd, code in odd.items():
        with refused(place, code, "working directory"):
            place.run("touch ran", cwd=cwd)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every directory")
@pytest.mark.parametrize("mode", [0o000, 0o300])
def test_a_cwd_that_cannot_be_read_is_an_error(place: Place, mode: int) -> None:
    shut = place.workspace / "shut"
    shut.mkdir()
    shut.chmod(mode)

    with refused(place, "permission_denied", "Permission denied"):
        place.run("touch ran", cwd="shut")

    shut.chmod(0o700)
    assert place.run("pwd", cwd="shut").stdout == f"{shut}\n"


@pytest.mark.parametrize("where", ["/boot", "outside", "..", "link"])
def test_a_cwd_outside_the_whitelist_is_refused_with_the_rule_and_what_would_allow_it(place: Place, where: str) -> None:
    outside = place.top / "outside"
    outside.mkdir()
    (place.workspace / "link").symlink_to(outside)
    cwd = outside if where == "outside" else Path(where)

    done = place.run("touch ran; pwd", cwd=cwd)

    assert isinstance(done.ending, Refused), "it is returned, not raised"
    assert (done.exit_code, done.stdout, done.blocked) == (122, "", True)
    assert done.ending.rule and done.ending.allow_by
    assert done.ending.rule in (done.blocked_reason or "")
    assert not (outside / "ran").exists() and not (place.workspace / "ran").exists()
    with pytest.raises(RingfenceError) as caught:
        done.check()
    assert caught.value.code == "command_not_allowed"


@pytest.mark.parametrize("where", ["/usr", "/usr/bin", "/", "/tmp", "home"])
def test_a_cwd_that_every_box_has_needs_no_grant(place: Place, where: str) -> None:
    cwd = place.home if where == "home" else Path(where)

    assert place.run("pwd -P; touch ran 2>/dev/null", cwd=cwd).stdout == f"{cwd}\n"
    assert not (cwd / "ran").exists(), "it is the box's own"


def test_a_cwd_may_be_what_an_earlier_command_made(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell("mkdir -p /tmp/x/y ~/made sub; ln -s /tmp/x to-x; ln -s /workspace/sub to-sub; touch /tmp/file")
        where = {
            "/tmp/x/y": "/tmp/x/y",
            "/tmp/x/../x": "/tmp/x",
            f"{place.home}/made": f"{place.home}/made",
            "to-x/y": "/tmp/x/y",
            "/workspace/to-sub": f"{place.workspace}/sub",
        }
        for cwd, real in where.items():
            assert (await box.shell("pwd -P", cwd=cwd)).stdout == f"{real}\n"
            assert (await box.exec(["pwd"], cwd=cwd)).stdout == f"{real}\n"
        with pytest.raises(NotADirectoryError):
            await box.shell("pwd", cwd="/tmp/file")
        with pytest.raises(FileNotFoundError) as caught:
            await box.shell("pwd", cwd="/tmp/none")
        assert caught.value.errno == errno.ENOENT
        await box.shell("mkdir -m 000 /tmp/shut")
        with pytest.raises(PermissionError):
            await box.shell("pwd", cwd="/tmp/shut")

    place.in_box(work)


def test_what_the_refusal_says_would_allow_it_does_allow_it(place: Place) -> None:
    outside = place.top / "outside"
    outside.mkdir()

    done = place.run("touch ran; pwd", cwd=outside, write=[outside])

    assert (done.stdout, (outside / "ran").exists()) == (f"{outside}\n", True)


def test_a_refused_cwd_is_in_the_journal_and_no_box_was_needed(place: Place) -> None:
    place.run("touch ran", cwd="/boot")

    record = json.loads((place.state / "journal.jsonl").read_text().splitlines()[-1])
    assert record["verdict"] == "deny" and record["ending"].startswith("refused")


def test_a_workspace_that_is_a_link_is_an_error_that_names_the_directory(place: Place) -> None:
    link = place.top / "link"
    link.symlink_to(place.workspace)

    for given in (link, f"{link}/"):
        with refused(place, "path_access_denied", "link"):
            place.run("touch ran", workspace=given)
    with pytest.raises(RingfenceError, match=re.escape(str(place.workspace))):
        place.run("true", workspace=link)


def test_the_root_the_home_and_system_directories_are_no_workspace(place: Place) -> None:
    for given in (
        "/",
        "//",
        place.home,
        f"{place.home}/.",
        place.home.parent,
        "/tmp",
        "/etc",
        "/usr",
        "/proc",
        "/dev/shm",
    ):
        with refused(place, "path_access_denied", "must not be writable|belongs to the kernel"):
            place.run("touch ran", workspace=given)
        with pytest.raises(RingfenceError) as caught:
            place.run("touch ran", write=[given])
        assert caught.value.code == "path_access_denied" and caught.value.hint


def test_a_directory_below_the_home_is_a_workspace(place: Place) -> None:
    assert place.workspace.parent == place.home
    assert place.run("pwd").stdout == f"{place.workspace}\n"


@pytest.mark.parametrize("given", ["", "a\0b"], ids=repr)
def test_a_workspace_that_cannot_be_a_path_is_an_error(place: Place, given: str) -> None:
    with refused(place, "invalid_argument", "cannot be a path"):
        place.run("touch ran", workspace=given)


def test_a_workspace_that_is_missing_or_a_file_is_an_error(place: Place) -> None:
    (place.top / "file").touch()
    for given, code in (("missing", "not_found"), ("file", "not_a_directory"), ("file/below", "not_a_directory")):
        with refused(place, code, "cannot be granted|not a directory"):
            place.run("touch ran", workspace=place.top / given)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_workspace_that_cannot_be_written_is_an_error_that_says_so(place: Place) -> None:
    shut = place.top / "shut"
    shut.mkdir(mode=0o555)

    with refused(place, "permission_denied", "cannot protect"):
        place.run("true", workspace=shut)


ODD = {
    "newline": b"new\nline",
    "quotes": b'it\'s "quoted"',
    "star": b"a*b?[c]",
    "shell": b"$(touch ran);`x`&|>",
    "bytes": b"\xff\xfe\x80",
    "dash": b"--bind",
    "blank": b" a b ",
    "backslash": b"a\\nb\\",
    "unicode": "日本 🦊".encode(),
    "long": b"x" * 255,
}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD.keys())
def test_odd_names_work_as_workspace_and_as_cwd(place: Place, name: bytes) -> None:
    workspace = os.path.join(os.fsencode(place.home), name)
    inner = os.path.join(workspace, name)
    os.makedirs(inner)
    with open(os.path.join(workspace, b".env"), "w") as file:
        file.write("secret")
    given = os.fsdecode(workspace)

    first = ringfence.run("pwd; touch made; cat .env; echo x > .vscode", workspace=given, timeout=30)
    second = ringfence.run("pwd", workspace=given, cwd=os.fsdecode(inner), timeout=30)
    third = ringfence.run("pwd", workspace=given, cwd=os.fsdecode(name), timeout=30)
    fourth = ringfence.run("pwd", workspace=place.workspace, write=[given], read=[given], cwd=given, timeout=30)

    assert first.stdout_bytes == workspace + b"\n"
    assert second.stdout_bytes == third.stdout_bytes == inner + b"\n"
    assert fourth.stdout_bytes == workspace + b"\n"
    assert sorted(os.listdir(workspace)) == sorted([b".env", name, b"made"])
    assert not os.path.exists(os.path.join(os.fsencode(place.home), b"ran"))


def test_odd_names_in_the_workspace_are_covered_too(place: Place) -> None:
    for number, name in enumerate(ODD.values()):
        directory = os.path.join(os.fsencode(place.workspace), name)
        os.makedirs(directory)
        with open(os.path.join(directory, b".env"), "w") as file:
            file.write(f"secret {number}")

    done = place.run("find . -name .env -exec cat {} +; echo done")

    assert done.stdout == "done\n"
    assert place.host("find . -name .env -exec cat {} +").stdout.count("secret") == len(ODD)


def test_a_very_deep_workspace_works_or_is_a_clear_error(place: Place) -> None:
    deep = place.home.joinpath(*["d" * 200] * 15)
    deep.mkdir(parents=True)

    assert place.run("pwd", workspace=deep).stdout == f"{deep}\n"


HOST_WORKSPACE = """
import ringfence, sys
one = ringfence.run("pwd; cat /workspace/inner/file; echo made > made", workspace={workspace!r}, timeout=30)
two = ringfence.run("pwd", workspace={workspace!r}, cwd={cwd!r}, timeout=30)
print(one.stdout + one.stderr + two.stdout, end="")
"""


@pytest.mark.parametrize(
    ("workspace", "cwd", "pwd"),
    [
        ("/workspace", "/workspace/inner", "/workspace/inner"),
        ("/workspace/inner", "/workspace/inner", "/workspace/inner"),
    ],
    ids=["itself", "below"],
)
def test_a_host_whose_workspace_is_called_workspace_works(place: Place, workspace: str, cwd: str, pwd: str) -> None:
    """As in most containers. Played with a mount namespace, in which /workspace is a directory of the host."""
    from ringfence.confinement.linux.bwrap import find_bwrap  # the bundled one, if there is no other

    bwrap = find_bwrap(None)
    assert bwrap is not None
    inner = place.workspace / "inner"
    inner.mkdir()
    (inner / "file").write_text("content\n")
    program = HOST_WORKSPACE.format(workspace=workspace, cwd=cwd)
    tops = [
        f"/{name}"
        for name in os.listdir("/")
        if name != "workspace" and os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")
    ]
    binds = [word for top in tops for word in ("--dev-bind", top, top)]
    links = [
        word
        for top in os.listdir("/")
        if os.path.islink(f"/{top}")
        for word in ("--symlink", os.readlink(f"/{top}"), f"/{top}")
    ]

    done = subprocess.run(
        [bwrap, *binds, *links, "--bind", str(place.workspace), "/workspace", "--", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            "PATH": SYSTEM_PATH,
            "HOME": str(place.home),
            "PYTHONPATH": os.path.dirname(os.path.dirname(ringfence.__file__)),
        },
        check=False,
    )

    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.startswith(f"{workspace}\n") and "content\n" in done.stdout
    assert done.stdout.endswith(f"{pwd}\n")
    assert place.names() - {"inner", "inner/file"} <= {"made", "inner/made"}


# --- limits and times -------------------------------------------------------------------------------------------------

FIELDS = (
    "wall_seconds",
    "cpu_seconds",
    "memory_bytes",
    "processes",
    "open_files",
    "file_bytes",
    "output_bytes",
    "tmp_bytes",
    "disk_bytes",
    "files",
)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), float("inf"), True, "five"], ids=repr)
def test_a_limit_of_zero_or_below_or_of_no_number_is_an_error(place: Place, name: str, value: object) -> None:
    with pytest.raises(RingfenceError, match=name) as caught:
        Limits(**{name: value})  # type: ignore[arg-type]

    assert caught.value.code == "invalid_argument" and caught.value.hint


@pytest.mark.parametrize("name", [name for name in FIELDS if not name.endswith("seconds")])
def test_a_limit_that_counts_things_is_a_whole_number(name: str) -> None:
    with pytest.raises(RingfenceError, match=name):
        Limits(**{name: 0.5})  # type: ignore[arg-type]


def test_a_limit_of_zero_in_the_configuration_is_an_error_or_the_defaults(place: Place) -> None:
    config = place.top / "sandbox.json"
    for limits in ({"memory": 0}, {"memory_bytes": -1}, {"wallSeconds": 0}):
        config.write_text(json.dumps({"limits": limits}))
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                box = place.box(config=config)
            except RingfenceError as fault:
                assert fault.code == "invalid_config"
            else:
                assert box.resource_limits == Limits()
                assert heard, "it is said"


@pytest.mark.parametrize("timeout", [0, -1, float("nan")], ids=repr)
def test_a_timeout_of_zero_or_below_is_an_error(place: Place, timeout: float) -> None:
    with refused(place, "invalid_argument", "timeout"):
        place.run("touch ran", timeout=timeout)


def test_an_endless_timeout_is_the_limit(place: Place) -> None:
    done = place.run("sleep 60", timeout=float("inf"), limits=Limits(wall_seconds=0.3))

    assert str(done.ending).startswith("timed out")


@pytest.mark.parametrize(
    "limits",
    [
        Limits(processes=1),
        Limits(open_files=1),
        Limits(open_files=4),
        Limits(memory_bytes=1),
        Limits(tmp_bytes=1),
        Limits(output_bytes=1),
        Limits(file_bytes=1),
        Limits(disk_bytes=1),
        Limits(files=1),
        Limits(cpu_seconds=0.001),
    ],
    ids=str,
)
def test_limits_of_next_to_nothing_are_kept_without_a_hang_or_a_half_box(place: Place, limits: Limits) -> None:
    try:
        done = place.run("exit 0", limits=limits, timeout=20)
    except RingfenceError as fault:
        assert fault.code in ("initialization_failed", "spawn_failed", "internal")
        assert fault.message
    else:
        assert done.exit_code in (0, 123, 137) or done.exit_code > 0
    assert place.names() == set()
    assert place.run("echo next").stdout == "next\n"


# --- the whitelist ----------------------------------------------------------------------------------------------------


def test_a_whitelist_entry_that_does_not_exist_is_left_out_and_said(place: Place) -> None:
    config = place.top / "sandbox.json"
    missing = place.top / "not-there"
    config.write_text(json.dumps({"filesystem": {"whitelist": [str(missing)]}}))

    with pytest.warns(RingfenceWarning, match="not-there"):
        done = place.run(f"echo works; touch {missing}", config=config)

    assert done.stdout == "works\n"
    assert not missing.exists()


@pytest.mark.parametrize("option", ["read", "write"])
def test_a_directory_that_is_asked_for_by_name_and_missing_is_an_error(place: Place, option: str) -> None:
    with refused(place, "not_found", "No such file"):
        place.run("touch ran", **{option: [place.top / "missing"]})


def test_a_configuration_that_is_named_and_missing_is_an_error(place: Place) -> None:
    with refused(place, "invalid_config", "no such file"):
        place.run("touch ran", config=place.top / "missing.json")


@pytest.mark.parametrize("row", ["", "a\0b", "["], ids=repr)
def test_a_blacklist_row_that_cannot_be_is_an_error_or_holds(place: Place, row: str) -> None:
    try:
        done = place.run("echo ran", deny=[row])
    except RingfenceError as fault:
        assert fault.code == "invalid_argument"
    else:
        assert done.stdout == "ran\n"
    assert place.names() == set()


# --- the journal ------------------------------------------------------------------------------------------------------


def test_a_journal_that_cannot_be_written_means_that_nothing_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.top / "file").touch()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(place.top / "file" / "state"))
    with pytest.raises(RingfenceError, match="nothing is run") as caught:
        place.run("touch ran")
    assert caught.value.code == "permission_denied"
    assert place.names() == set()

    monkeypatch.delenv("RINGFENCE_STATE_DIR")
    assert place.run("echo next").stdout == "next\n"


def test_a_command_in_the_journal_is_one_line_whatever_it_holds(place: Place) -> None:
    place.run("echo 'a\nb\u2028\udcff'")

    (line,) = (place.state / "journal.jsonl").read_bytes().splitlines()
    assert json.loads(line)["command"] == "echo 'a\nb\u2028\udcff'"


# --- the wrong type ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.run(5),
        lambda p: p.run(["a", 5]),
        lambda p: p.run("true", env={"A": 5}),
        lambda p: p.run("cat", stdin=5),
        lambda p: p.run("true", timeout=["5"]),
    ],
    ids=["command", "argv", "env", "stdin", "timeout"],
)
def test_an_argument_of_the_wrong_type_is_an_error_and_leaves_nothing(
    place: Place, call: Callable[[Place], object]
) -> None:
    with pytest.raises(WrongType):
        call(place)

    assert place.names() == set()
    assert place.run("echo next").stdout == "next\n"
