"""`ringfence.dataclass` does what `dataclasses` does, for every class that is written with it."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import ringfence
from ringfence import dataclass as ours

HERE = __name__


def pair(make: Callable[[Any], type]) -> tuple[type, type]:
    """The same class by both decorators."""
    return make(dataclasses), make(ours)


def point(by: Any) -> type:
    @by.dataclass(frozen=True, slots=True, order=True)
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: tuple[str, ...] = by.field(default=(), compare=False, repr=False)

        def moved(self) -> int:
            return self.x + self.y

    return Point


def later(by: Any) -> type:
    @by.dataclass(slots=True, kw_only=True)
    class Later:
        names: list[str] = by.field(default_factory=list)
        count: int = 0
        total: int = by.field(init=False, repr=False)

        def __post_init__(self) -> None:
            self.total = self.count + len(self.names)

    return Later


def derived(by: Any) -> type:
    @by.dataclass(frozen=True, slots=True)
    class Base:
        a: int
        b: int = 1

    @by.dataclass(frozen=True, slots=True)
    class Derived(Base):
        c: int = 3

    return Derived


def told(what: Callable[[], object]) -> object:
    """What comes of it: a value as text, or the error and its words."""
    try:
        return repr(what()).replace("object at 0x", "")
    except Exception as fault:
        return type(fault), str(fault)


USES: list[tuple[Callable[[Any], type], Callable[[type], object]]] = [
    (point, lambda kind: kind(1)),
    (point, lambda kind: kind(1, 5, ("t",))),
    (point, lambda kind: kind(x=1)),
    (point, lambda kind: kind()),
    (point, lambda kind: kind(1, 2, (), 4)),
    (point, lambda kind: kind(1, x=2)),
    (point, lambda kind: kind(1, z=2)),
    (point, lambda kind: [kind(n) for n in range(9)]),
    (point, lambda kind: kind(1) == kind(1, tags=("other",))),
    (point, lambda kind: kind(1) == kind(2)),
    (point, lambda kind: kind(1) == (1, 2)),
    (point, lambda kind: hash(kind(1)) == hash(kind(1, tags=("other",)))),
    (point, lambda kind: sorted([kind(3), kind(1)])),
    (point, lambda kind: kind(1) < (2, 3)),
    (point, lambda kind: setattr(kind(1), "x", 3)),
    (point, lambda kind: delattr(kind(1), "x")),
    (point, lambda kind: kind.__slots__),
    (point, lambda kind: kind.__match_args__),
    (point, lambda kind: hasattr(kind(1), "__dict__")),
    (point, lambda kind: kind(1).moved()),
    (point, lambda kind: kind.kind),
    (point, lambda kind: kind.__doc__),
    (point, lambda kind: str(inspect.signature(kind)).replace("'", "")),
    (point, lambda kind: dataclasses.asdict(kind(1))),
    (point, lambda kind: [field.name for field in dataclasses.fields(kind)]),
    (point, lambda kind: dataclasses.replace(kind(1), y=7)),
    (point, lambda kind: ours.replace(kind(1), y=7)),
    (point, lambda kind: ours.replace(kind(1), z=7)),
    (point, lambda kind: ours.field_names(kind)),
    (point, lambda kind: copy.copy(kind(1, tags=("t",))).tags),
    (point, lambda kind: copy.deepcopy(kind(1))),
    (later, lambda kind: kind()),
    (later, lambda kind: kind(names=["a"], count=2).total),
    (later, lambda kind: kind(["a"])),
    (later, lambda kind: kind().names is kind().names),
    (later, lambda kind: hash(kind())),
    (later, lambda kind: kind() == kind()),
    (later, lambda kind: kind(total=3)),
    (later, lambda kind: ours.replace(kind(count=2), count=3).total),
    (later, lambda kind: ours.replace(kind(count=2), total=3)),
    (later, lambda kind: kind.__match_args__),
    (derived, lambda kind: kind(1)),
    (derived, lambda kind: kind(1, 2, 3) == kind(1, 2, 3)),
    (derived, lambda kind: kind.__slots__),
    (derived, lambda kind: [field.name for field in dataclasses.fields(kind)]),
    (derived, lambda kind: dataclasses.is_dataclass(kind)),
    (derived, lambda kind: setattr(kind(1), "b", 3)),
]


@pytest.mark.parametrize(("make", "use"), USES)
def test_both_decorators_come_to_the_same(make: Callable[[Any], type], use: Callable[[type], object]) -> None:
    standard, lazy = pair(make)

    assert told(lambda: use(lazy)) == told(lambda: use(standard))


@ours.dataclass(frozen=True, slots=True)
class Packed:
    x: int
    y: tuple[int, ...] = ()


def test_a_frozen_value_is_pickled_and_found_again() -> None:
    assert pickle.loads(pickle.dumps(Packed(1, (2,)))) == Packed(1, (2,))


def test_what_the_standard_decorator_refuses_is_refused() -> None:
    def make(by: Any) -> Callable[[], object]:
        def mutable() -> object:
            @by.dataclass(frozen=True, slots=True)
            class Wrong:
                x: list[int] = []  # noqa: RUF012  what is refused

            return Wrong

        return mutable

    def order(by: Any) -> Callable[[], object]:
        def without() -> object:
            @by.dataclass(frozen=True, slots=True)
            class Wrong:
                x: int = 1
                y: int

            return Wrong

        return without

    for each in (make, order):
        assert told(each(ours)) == told(each(dataclasses))
        assert isinstance(told(each(ours)), tuple)


def test_a_method_is_compiled_when_it_is_called_and_not_before() -> None:
    lazy = point(ours)
    stand_in = lazy.__init__  # type: ignore[misc]  # to see it exchanged

    for number in range(10):
        lazy(number)

    assert lazy.__init__ is not stand_in  # type: ignore[misc]  # as above
    assert "__lazy__" not in point(dataclasses).__dict__


def test_annotations_of_a_compiled_init_are_found_in_its_module() -> None:
    for number in range(10):
        Packed(number)

    assert typing.get_type_hints(Packed.__init__)["y"] == tuple[int, ...]
    assert Packed.__init__.__globals__ is globals()


def classes_of_ours() -> list[type]:
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(ringfence.__path__, "ringfence."):
        if ".drivers" in module.name or "macos" in module.name or ".wasi.runner." in module.name:
            continue  # programs of other processes, which find each other as top-level modules
        for name, thing in vars(importlib.import_module(module.name)).items():
            if isinstance(thing, type) and "__lazy__" in vars(thing) and thing.__module__ == module.name:
                found[f"{module.name}.{name}"] = thing
    return list(found.values())


def test_every_class_of_ours_has_the_fields_and_the_signature_of_the_standard_decorator() -> None:
    classes = classes_of_ours()

    assert len(classes) > 200
    for kind in classes:
        lazy = vars(kind)["__lazy__"]
        assert [field.name for field in dataclasses.fields(kind)] == list(lazy.fields), kind
        made, standard = inspect.signature(lazy.make_init()), inspect.signature(lazy.complete().__init__)
        assert [(each.name, each.kind) for each in made.parameters.values()] == [
            (each.name, each.kind) for each in standard.parameters.values()
        ], kind
        assert kind.__match_args__ == lazy.complete().__match_args__, kind  # type: ignore[attr-defined]  # a dataclass's
        for name in ("__eq__", "__hash__", "__repr__"):
            assert (getattr(kind, name) is None) == (getattr(lazy.complete(), name) is None), kind
