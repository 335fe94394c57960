"""Which boxes a keeper holds ready, and which have to go."""

from ringfence.keeper.settings import Settings, read_settings
from ringfence.keeper.shelf import Shelf


def a_shelf(most: int = 2, seconds: float = 60.0) -> Shelf[str]:
    return Shelf(most, seconds)


def test_one_is_taken_once_and_only_when_it_is_ready() -> None:
    shelf = a_shelf()
    shelf.put(7, "a", 0)
    assert shelf.take(7) is None, "it is being made"
    shelf.ready("a", 1)

    assert shelf.take(8) is None
    assert shelf.take(7) == "a"
    assert shelf.take(7) is None


def test_there_is_one_for_each_kind_and_none_for_calls_without_one() -> None:
    shelf = a_shelf()
    assert shelf.wants(7) and not shelf.wants(0)
    shelf.put(7, "a", 0)

    assert not shelf.wants(7) and shelf.wants(8)
    assert not a_shelf(most=0).wants(7)


def test_the_one_that_has_waited_longest_goes_for_a_new_kind() -> None:
    shelf = a_shelf()
    assert shelf.put(1, "a", 0) is None
    assert shelf.put(2, "b", 1) is None

    assert shelf.put(3, "c", 2) == "a"
    assert len(shelf) == 2


def test_who_waits_too_long_goes() -> None:
    shelf = a_shelf(seconds=10)
    assert shelf.seconds_left(0) is None
    shelf.put(1, "a", 0)
    shelf.put(2, "b", 0)
    shelf.ready("b", 5)

    assert shelf.seconds_left(8) == 2
    assert shelf.expired(9) == []
    assert shelf.expired(10) == ["a"], "it was never ready"
    assert shelf.ages(12) == [7]
    assert shelf.expired(15) == ["b"] and len(shelf) == 0


def test_who_is_gone_is_forgotten() -> None:
    shelf = a_shelf()
    shelf.put(1, "a", 0)
    shelf.forget("a")

    assert shelf.wants(1) and shelf.clear() == []


def test_settings_are_read_and_nonsense_is_not_taken() -> None:
    said = {
        "RINGFENCE_KEEPER_IDLE_SECONDS": "5",
        "RINGFENCE_KEEPER_BOXES": "2",
        "RINGFENCE_KEEPER_BOX_SECONDS": "0.5",
    }
    assert read_settings(said) == Settings(5, 2, 0.5)
    for nonsense in ("", "x", "-1", "nan", "inf"):
        assert read_settings(dict.fromkeys(said, nonsense)) == Settings()
    assert read_settings({"RINGFENCE_KEEPER_BOXES": "100000"}).boxes == 64
