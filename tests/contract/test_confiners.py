"""One suite for every confiner: what it makes of a view holds nothing that it was not given, and loses nothing.

The words are looked at as the helper reads them: ended by NUL, one after the other.
"""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from ringfence.confinement.base import Confiner, Cover, Descriptors, How, Launch, StandIn, View
from ringfence.confinement.choose import choose, confiners
from ringfence.engines.native import starting
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee
from tests.support.fakes import a_view

DESCRIPTORS = Descriptors(options=41, seccomp=42, helper=43, control=44)
SECRET = "hunter2-never-in-a-plan"
ODD = [
    "--bind",
    "--",
    "-",
    "new\nline",
    "quo'te\"",
    "st*r",
    "bl ank",
    "$(id)",
    "`id`",
    "\udcff\udcfe",
    "ünï",
    "exec",
    "seal",
]
NAMES = [confiner.name for confiner in confiners()]
BUILDING = ["bwrap", "unshare"]
"""Those that build a file system of their own."""


@pytest.fixture(params=NAMES)
def confiner(request: pytest.FixtureRequest) -> Confiner:
    return _usable(request.param)


@pytest.fixture(params=BUILDING)
def building(request: pytest.FixtureRequest) -> Confiner:
    return _usable(request.param)


def _usable(name: str) -> Confiner:
    (found,) = (confiner for confiner in confiners() if confiner.name == name)
    if name in ("bwrap", "gvisor") and not found.probe().usable:
        pytest.skip(f"{name}: {found.probe().missing}")
    return found


def all_words(launch: Launch) -> tuple[str, ...]:
    return (*launch.plan, *launch.options, *launch.configure, launch.description)


# How many words follow each verb of a plan; `exec` takes the rest.
_AFTER = {
    "private": 0, "network": 0, "area": 0, "seal": 0, "take": 1, "mapped": 1, "dir": 1, "terminals": 1, "map": 4,
    "show": 2, "share": 2, "device": 2, "text": 2, "link": 2, "tmpfs": 5, "hide": 2, "freeze": 2, "anchor": 2, "pin": 2,
    "become": 2, "enter": 4, "stay": 2,
}  # fmt: skip


def steps(launch: Launch) -> list[tuple[str, ...]]:
    """The plan as the helper takes it apart."""
    words, found = list(starting._words(launch.plan).split(b"\0")[:-1]), []
    while words:
        verb = words.pop(0).decode()
        count = len(words) if verb == "exec" else _AFTER[verb]
        found.append((verb, *(os.fsdecode(word) for word in words[:count])))
        del words[:count]
    return found


def placed(launch: Launch, *verbs: str) -> list[str]:
    """Names of the new root, in the order in which they are put there."""
    return [step[-1] for step in steps(launch) if step[0] in verbs]


@pytest.mark.req("A4", "D4")
def test_the_launcher_s_environment_never_appears(confiner: Confiner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv(SECRET, "x")

    launch = confiner.wrap(a_view(), DESCRIPTORS, None)

    assert not any(SECRET in word for word in all_words(launch))
    assert SECRET.encode() not in launch.seccomp


def test_the_check_above_can_fail(confiner: Confiner) -> None:
    launch = confiner.wrap(a_view(writable=(f"/srv/{SECRET}",)), DESCRIPTORS, None)

    assert any(SECRET in word for word in all_words(launch))


@pytest.mark.req("A5", "D4")
def test_no_wall_that_builds_is_entered_without_a_network_of_its_own(building: Confiner) -> None:
    """bubblewrap is not asked for one: the launcher has made it, and before it leaves uid 0."""
    stand_in = StandIn(9, 9, (("/srv/work", 0, 0),))
    for launch in (building.wrap(a_view(), DESCRIPTORS, None), building.wrap(a_view(), DESCRIPTORS, stand_in)):
        verbs = [step[0] for step in steps(launch)]
        inside = verbs.index("enter") if "enter" in verbs else verbs.index("network")

        assert inside < len(verbs) - 1
        assert verbs[-1] in ("exec", "stay")
        assert "become" not in verbs[:inside]


@pytest.mark.req("D4")
def test_a_process_list_shows_no_path_of_the_grant(confiner: Confiner) -> None:
    """Only what follows `exec` becomes somebody's arguments; behind `unshare`, nothing does."""
    launch = confiner.wrap(a_view(writable=("/srv/private-project",), home="/home/ann"), DESCRIPTORS, None)

    *before, start = steps(launch)
    assert start[0] in ("exec", "stay") and "exec" not in (step[0] for step in before)
    assert not any("private-project" in word or "ann" in word for word in start)


@pytest.mark.req("D4")
def test_the_only_programs_that_a_plan_starts_are_ours_and_the_wall_s(confiner: Confiner) -> None:
    """No text of a command can be in a plan: a confiner never sees one, and PID 1 is told later, by message."""
    launch = confiner.wrap(a_view(), DESCRIPTORS, None)

    start = steps(launch)[-1]
    if confiner.name == "unshare":  # it is PID 1 already
        assert start == ("stay", "44", "0")
        return
    assert start[0] == "exec"
    if confiner.name == "gvisor":
        assert start[1:6] == ("/proc/self/fd/43", "carry", "44", str(DESCRIPTORS.options), "/sys/run")
        assert start[6].endswith("/runsc")
        assert all(word.startswith("--") or word in ("run", "box") for word in start[7:])
        return
    assert start[-3:] == ("/proc/self/fd/43", "init", "44")
    assert len(start) in (4, 8)
    assert start[1].endswith("bwrap") or len(start) == 4


@pytest.mark.req("D4")
@pytest.mark.parametrize("name", ODD)
def test_options_cannot_be_injected_through_a_path(building: Confiner, name: str) -> None:
    view = a_view(
        readable=(f"/data/{name}",),
        writable=(f"/srv/{name}",),
        covers=(Cover(f"/srv/{name}", name, How.HIDE), Cover(f"/srv/{name}", f"a/{name}", How.FREEZE)),
        hidden=(f"/data/{name}/{name}",),
        home=f"/home/{name}",
    )
    plain = a_view(
        readable=("/data/x",),
        writable=("/srv/x",),
        covers=(Cover("/srv/x", "x", How.HIDE), Cover("/srv/x", "a/x", How.FREEZE)),
        hidden=("/data/x/x",),
        home="/home/x",
    )

    odd, expected = (building.wrap(each, DESCRIPTORS, None) for each in (view, plain))

    assert [step[0] for step in steps(odd)] == [step[0] for step in steps(expected)]
    assert ("hide", f"/srv/{name}", name) in steps(odd)
    assert ("freeze", f"/srv/{name}", f"a/{name}") in steps(odd)
    assert ("hide", f"/data/{name}", name) in steps(odd)
    assert odd.options == expected.options
    assert len(odd.configure) == len(expected.configure)


@pytest.mark.parametrize("name", ODD)
def test_words_stay_whole_on_the_wire(confiner: Confiner, name: str) -> None:
    if confiner.name == "gvisor" and name.encode(errors="replace").decode() != name:
        with pytest.raises(InitializationFailed, match="UTF-8"):
            confiner.wrap(a_view(writable=(f"/srv/{name}",)), DESCRIPTORS, None)
        return
    launch = confiner.wrap(a_view(writable=(f"/srv/{name}",)), DESCRIPTORS, None)

    for words in (launch.plan, launch.options, launch.configure):
        wire = starting._words(words)
        assert tuple(os.fsdecode(word) for word in wire.split(b"\0")[:-1]) == words


@pytest.mark.req("A4")
def test_parents_are_put_before_their_children(building: Confiner) -> None:
    view = a_view(readable=("/a/b/c", "/a"), writable=("/a/b/c/d", "/a/b"))

    names = [name for name in placed(building.wrap(view, DESCRIPTORS, None), "show", "share") if name.startswith("/a")]

    assert names == ["/a", "/a/b", "/a/b/c", "/a/b/c/d"]


@pytest.mark.req("A4")
def test_system_then_private_directories_then_grants_then_covers_then_the_seal(building: Confiner) -> None:
    view = a_view(
        readable=("/tmp/shown",),
        writable=("/home/agent/work",),
        covers=(Cover("/home/agent/work", ".env", How.HIDE),),
        hidden=("/tmp/shown/key",),
    )
    found = steps(building.wrap(view, DESCRIPTORS, None))

    order = [
        next(number for number, step in enumerate(found) if step[0] == verb and step[-1 - back] == name)
        for verb, back, name in [
            ("show", 0, "/usr"),
            ("tmpfs", 4, "/tmp"),
            ("show", 0, "/tmp/shown"),
            ("hide", 0, ".env"),
            ("hide", 0, "key"),
        ]
    ]
    assert all(before < after for before, after in pairwise(order))
    last_cover = max(number for number, step in enumerate(found) if step[0] == "hide")
    assert found[last_cover + 1][0] == "seal"


@pytest.mark.req("A4")
def test_only_what_is_writable_is_shared(building: Confiner) -> None:
    view = a_view(readable=("/data",), writable=("/srv/work", "/srv/more"))

    launch = building.wrap(view, DESCRIPTORS, None)

    assert placed(launch, "share") == ["/srv/more", "/srv/work"]
    assert "/data" in placed(launch, "show")


@pytest.mark.req("A3")
def test_a_writable_grant_of_the_same_path_is_put_after_a_readable_one_never_before_a_cover(building: Confiner) -> None:
    view = a_view(writable=("/srv/work",), covers=(Cover("/srv/work", "keys", How.HIDE),))
    found = steps(building.wrap(view, DESCRIPTORS, None))

    share = next(number for number, step in enumerate(found) if step[0] == "share")
    assert found.index(("hide", "/srv/work", "keys")) > share


@pytest.mark.req("B6")
def test_run_by_root_each_directory_is_mapped_to_its_owner_and_uid_0_is_left(building: Confiner) -> None:
    view = a_view(writable=("/srv/a", "/srv/b"))
    stand_in = StandIn(70_000, 70_001, (("/srv/a", 0, 0), ("/srv/b", 5, 6)))

    found = steps(building.wrap(view, DESCRIPTORS, stand_in))

    mapped = [(before[1:], step[1]) for before, step in pairwise(found) if step[0] == "mapped"]
    assert mapped == [(("0", "0", "70000", "70001"), "/srv/a"), (("5", "6", "70000", "70001"), "/srv/b")]
    leaving = next(step for step in found if step[0] in ("become", "enter"))
    assert leaving[1:3] == ("70000", "70001")
    assert found[-1][0] in ("exec", "stay")
    assert found.index(leaving) < len(found) - 1


@pytest.mark.req("A5", "B6")
def test_the_filter_is_the_same_for_everyone_but_stricter_where_files_would_be_root_s(building: Confiner) -> None:
    ordinary = building.wrap(a_view(), DESCRIPTORS, None).seccomp
    for_somebody = building.wrap(a_view(), DESCRIPTORS, StandIn(9, 9, (("/srv/work", 5, 5),))).seccomp
    for_root = building.wrap(a_view(), DESCRIPTORS, StandIn(9, 9, (("/srv/work", 0, 0),))).seccomp

    assert ordinary == for_somebody != for_root
    assert len(ordinary) % 8 == 0


@pytest.mark.req("A9", "D4")
def test_a_confiner_claims_no_more_than_the_namespaces_or_their_lack_allow(confiner: Confiner) -> None:
    probe = confiner.probe()
    if not probe.usable:
        assert probe.missing and probe.hint and not probe.guarantees
        return
    assert (Guarantee.OWN_KERNEL in probe.guarantees) == (confiner.name == "gvisor")
    assert (Guarantee.PROTECTED_PATHS in probe.guarantees) == (confiner.name in (*BUILDING, "gvisor"))
    assert choose((confiner,), probe.guarantees) is confiner


@pytest.mark.req("A9")
@pytest.mark.parametrize(
    ("view", "stand_in"),
    [
        (a_view(covers=(Cover("/srv/work", ".env", How.HIDE),)), None),
        (a_view(hidden=("/usr/secret",)), None),
        (a_view(), StandIn(9, 9, (("/srv/work", 0, 0),))),
    ],
)
def test_landlock_alone_refuses_what_it_cannot_cover(view: View, stand_in: StandIn | None) -> None:
    confiner = _usable("landlock")

    with pytest.raises(InitializationFailed) as caught:
        confiner.wrap(view, DESCRIPTORS, stand_in)

    assert caught.value.hint
    assert confiner.wrap(a_view(), DESCRIPTORS, None)


def test_landlock_alone_may_read_the_small_files_of_etc_that_others_get_as_copies(tmp_path: Path) -> None:
    view = a_view(texts=(("services", "x"), ("passwd", "made up")))

    configure = _usable("landlock").wrap(view, DESCRIPTORS, None).configure

    if "landlock" in configure:
        assert os.path.realpath("/etc/services") in configure
        assert "/etc/passwd" not in configure
