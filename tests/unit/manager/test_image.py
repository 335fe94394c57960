"""Recipes of images, and what is said about one."""

import io
import tarfile
from pathlib import Path

import pytest

from ringfence.engines.docker.image import ImageFacts, ImageProgram, read_answers
from ringfence.errors import InitializationFailed, InvalidArgument
from ringfence.manager import image
from ringfence.manager.image import Recipe, build_command, judge, recipe

pytestmark = pytest.mark.req("B8")


def facts(*, user: str = "1000:1000", uid: int | None = 1000, helper_fault: str = "", shell: bool = True) -> ImageFacts:
    programs = {"sh": ImageProgram("/bin/sh", ""), "python3": ImageProgram("/usr/bin/python3", "Python 3.11.2")}
    return ImageFacts(
        image="x",
        id="sha256:0",
        architecture="amd64",
        size_bytes=1,
        created="",
        labels={},
        user=user,
        uid=uid,
        programs=programs if shell else {},
        helper_fault=helper_fault,
    )


def fit(found: ImageFacts, set_id: tuple[str, ...] = ()) -> bool:
    return all(check.ok for check in judge(found, set_id) if check.needed)


def test_the_same_inputs_give_the_same_tag_and_archive() -> None:
    assert recipe().tags == recipe().tags
    assert recipe().context == recipe().context


@pytest.mark.parametrize(
    "other",
    [recipe(["SNAPSHOT=20250520T000000Z"]), recipe(base="python:3.11-slim"), recipe(with_data=False)],
    ids=["argument", "base", "data"],
)
def test_other_inputs_give_another_tag(other: Recipe) -> None:
    assert other.tags[0] != recipe().tags[0]
    assert other.tags[1] == recipe().tags[1]


def test_inputs_cannot_be_moved_from_one_part_to_another() -> None:
    one = Recipe(files={"a": b"bc"}, arguments={}, ringfence="1")
    other = Recipe(files={"ab": b"c"}, arguments={}, ringfence="1")
    third = Recipe(files={}, arguments={"a": "bc"}, ringfence="1")

    assert len({one.hash, other.hash}) == 2
    assert third.hash != Recipe(files={}, arguments={"ab": "c"}, ringfence="1").hash


def test_the_archive_holds_every_file_that_the_dockerfile_copies() -> None:
    with tarfile.open(fileobj=io.BytesIO(recipe().context)) as archive:
        modes = {entry.name: entry.mode for entry in archive}
    dockerfile = recipe().files["Dockerfile"].decode()
    copied = {word for line in dockerfile.splitlines() if line.startswith("COPY ") for word in line.split()[1:-1]}

    assert copied | {"Dockerfile"} == set(modes)
    assert {modes[name] for name in modes if name.endswith(".sh")} == {0o755}


@pytest.mark.parametrize("argument", ["SNAPSHOT", "=x", "SNAP SHOT=1", "NOTHING=1", "--network=host"])
def test_what_is_no_argument_of_the_dockerfile_is_refused(argument: str) -> None:
    with pytest.raises(InvalidArgument):
        recipe([argument])


@pytest.mark.parametrize("name", ["", "--privileged", "a b", "a\nb", "-x", "x" * 300])
def test_what_is_no_name_of_an_image_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        recipe(base=name)


def test_the_build_command_goes_to_the_daemon_that_was_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    command = build_command(recipe(), docker_url="tcp://127.0.0.1:2375", network="host", no_cache=True)

    assert command[1:4] == ["--host", "tcp://127.0.0.1:2375", "build"]
    assert {"--network", "host", "--no-cache", *recipe().tags} <= set(command)
    assert command[-1] == "-"


def test_without_the_docker_command_building_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InitializationFailed, match="docker"):
        build_command(recipe(), docker_url=None)


def test_an_installation_without_the_files_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(image, "_PACKAGED", tmp_path)
    monkeypatch.setattr(image, "_CHECKOUT", tmp_path)

    with pytest.raises(InitializationFailed, match="did not come with"):
        recipe()


def test_an_image_with_all_that_boxes_need_is_fit() -> None:
    assert fit(facts())


@pytest.mark.parametrize(
    ("found", "set_id"),
    [
        (facts(user="", uid=0), ()),
        (facts(user="", uid=None), ()),
        (facts(user="somebody", uid=None, shell=False), ()),
        (facts(user="00", uid=None), ()),
        (facts(helper_fault="exec format error"), ()),
        (facts(shell=False), ()),
        (facts(), ("/usr/bin/su",)),
    ],
    ids=["root", "root by default", "a name that nobody confirms", "zeros", "helper", "no shell", "set-uid"],
)
def test_an_image_that_lacks_something_is_not(found: ImageFacts, set_id: tuple[str, ...]) -> None:
    assert not fit(found, set_id)
    assert all(check.hint for check in judge(found, set_id) if not check.ok)


def test_many_set_id_programs_are_cut_short() -> None:
    paths = tuple(f"/bin/{number}" for number in range(9))

    assert any("and 4 more" in check.found for check in judge(facts(), paths))


def test_answers_that_make_no_sense_are_left_out() -> None:
    uid, programs = read_answers(
        "uid 1000\nuid -1\nuid x\nprogram python3 /usr/bin/python3 Python 3.11.2\nprogram evil /x y\nprogram git\n\0\n"
        "program sh /bin/sh\nnoise"
    )

    assert uid == 1000
    assert programs == {"python3": ImageProgram("/usr/bin/python3", "Python 3.11.2"), "sh": ImageProgram("/bin/sh", "")}


def test_versions_are_bounded() -> None:
    assert len(read_answers(f"program git /git {'x' * 10_000}")[1]["git"].version) == 200
