"""The standard library's `dataclass`, whose methods are compiled when they are first called.

A command line that runs one command knows a hundred and fifty dataclasses and makes values of forty. The standard
decorator writes and compiles six functions for each when its module is loaded; that was a third of the time before a
command could start. Here a class gets its slots at once, and `__init__`, `__eq__` and `__hash__` when they are first
called. All else (`__repr__`, what `dataclasses.fields` reads) comes from the standard decorator, which is applied to a
twin of the class when it is first asked for.

What is rare (`InitVar`, a default without `init`, a `__setattr__` of its own) is left to the standard decorator
from the start, and so is everything on a Python that this was not tried on.
"""

import sys

from ringfence.deferred import load

TYPE_CHECKING = False  # without `typing`, which costs more than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import Any

_MISSING: "Any" = object()
_PLAIN = {"init", "default", "default_factory", "repr", "compare", "kw_only", "hash", "metadata"}
"""What `field` may be told here."""
_USUAL = {"frozen", "slots", "kw_only", "eq", "repr", "order"}
_LAST_TRIED = (3, 13)
_WORTH_COMPILING = 5
"""Values of a class from which on its `__init__` is compiled: that takes as long as to make so many without."""


class _Given:
    """What `field` was told."""

    __slots__ = ("words",)

    def __init__(self, words: "dict[str, Any]") -> None:
        self.words = words


class _Field:
    """As much of a field as is needed often."""

    __slots__ = ("default", "factory", "has_init", "is_compared", "is_hashed", "is_keyword", "name")

    def __init__(self, name: str, given: "Any", is_keyword: bool) -> None:
        words = given.words if isinstance(given, _Given) else {"default": given}
        self.name = name
        self.default = words.get("default", _MISSING)
        self.factory = words.get("default_factory", _MISSING)
        self.is_keyword = words.get("kw_only", is_keyword)
        self.has_init = words.get("init", True)
        self.is_compared = words.get("compare", True)
        self.is_hashed = self.is_compared if words.get("hash") is None else words["hash"]


class _Lazy:
    """How one class is completed."""

    __slots__ = ("body", "calls", "cls", "fields", "twin", "words")

    def __init__(self, body: "dict[str, Any]", fields: "dict[str, _Field]", words: "dict[str, Any]") -> None:
        self.body, self.fields, self.words = body, fields, words
        self.calls = 0
        self.cls: Any = None
        self.twin: Any = None

    def complete(self) -> "Any":
        """The same class by the standard decorator, which all but `__init__` is taken from."""
        if self.twin is None:
            dataclasses = load("dataclasses")

            body = {name: _standard(value) for name, value in self.body.items()}
            twin = type(self.cls)(self.cls.__name__, self.cls.__bases__, body)
            twin.__qualname__ = self.cls.__qualname__
            self.twin = dataclasses.dataclass(**{**self.words, "slots": False})(twin)
        return self.twin

    def fill(self, made: "Any", args: "tuple[Any, ...]", named: "dict[str, Any]") -> bool:
        """What `__init__` does, step by step; False, and nothing done, if the arguments do not fit."""
        wanted = [each for each in self.fields.values() if each.has_init]
        places = [each.name for each in wanted if not each.is_keyword]
        values = dict(zip(places, args, strict=False))
        if len(args) > len(places) or values.keys() & named.keys():
            return False
        values |= named
        for each in wanted:
            if each.name not in values and each.default is _MISSING and each.factory is _MISSING:
                return False
        if values.keys() - {each.name for each in wanted}:
            return False
        for each in wanted:
            if each.name in values:
                value = values[each.name]
            else:
                value = each.factory() if each.default is _MISSING else each.default
            object.__setattr__(made, each.name, value)
        if hasattr(self.cls, "__post_init__"):
            made.__post_init__()
        return True

    def make_init(self) -> "Callable[..., None]":
        """The source is what the standard decorator would write."""
        names: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": _MISSING}
        plain: list[str] = []
        keyword: list[str] = []
        lines: list[str] = []
        for each in self.fields.values():
            if not each.has_init:
                continue
            value, name = each.name, each.name
            if each.factory is not _MISSING:
                names[f"_make_{name}"] = each.factory
                word, value = f"{name}=_MISSING", f"_make_{name}() if {name} is _MISSING else {name}"
            elif each.default is not _MISSING:
                names[f"_default_{name}"] = each.default
                word = f"{name}=_default_{name}"
            else:
                word = name
            (keyword if each.is_keyword else plain).append(word)
            lines.append(f" _set(self, {name!r}, {value})" if self.words.get("frozen") else f" self.{name} = {value}")
        if hasattr(self.cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        heads = ["self", *plain, *(["*", *keyword] if keyword else [])]
        # In the module's own names, as the standard decorator does: its annotations may be texts.
        inner = "\n".join(f" {line}" for line in (f"def __init__({', '.join(heads)}):", *(lines or [" pass"])))
        made: dict[str, Any] = {}
        module = sys.modules.get(self.cls.__module__)
        exec(f"def make({', '.join(names)}):\n{inner}\n return __init__", vars(module) if module else {}, made)
        init = made["make"](**names)
        init.__qualname__ = f"{self.cls.__qualname__}.__init__"
        init.__module__ = self.cls.__module__
        init.__annotations__ = {name: self.body["__annotations__"][name] for name in self.own} | {"return": None}
        return init  # type: ignore[no-any-return]  # it was compiled

    def make_hash(self) -> "Callable[..., int]":
        values = "".join(f"self.{each.name}, " for each in self.fields.values() if each.is_hashed)
        return self._compiled("__hash__", f"(self):\n return hash(({values}))")  # type: ignore[no-any-return]  # compiled

    def make_eq(self) -> "Callable[..., bool]":
        names = [each.name for each in self.fields.values() if each.is_compared]
        ours, theirs = ("".join(f"{whose}.{name}, " for name in names) for whose in ("self", "other"))
        same = f" if other.__class__ is self.__class__:\n  return ({ours}) == ({theirs})\n return NotImplemented"
        return self._compiled("__eq__", f"(self, other):\n{same}")  # type: ignore[no-any-return]  # compiled

    def _compiled(self, name: str, rest: str) -> "Any":
        names: dict[str, Any] = {}
        exec(f"def {name}{rest}", names)
        names[name].__qualname__ = f"{self.cls.__qualname__}.{name}"
        names[name].__module__ = self.cls.__module__
        return names[name]

    @property
    def own(self) -> "list[str]":
        return [name for name in self.fields if name in self.body.get("__annotations__", ())]


def _standard(value: "Any") -> "Any":
    dataclasses = load("dataclasses")

    return dataclasses.field(**value.words) if isinstance(value, _Given) else value


class _OfTwin:
    """An attribute of the class that the standard decorator would have set."""

    __slots__ = ("lazy", "name")

    def __init__(self, lazy: _Lazy, name: str) -> None:
        self.lazy, self.name = lazy, name

    def __get__(self, value: "Any", owner: type) -> "Any":
        found = getattr(self.lazy.complete(), self.name)
        setattr(self.lazy.cls, self.name, found)
        return found


class _Signature:
    """For `inspect.signature` of the class, which would show the stand-in of `__init__`."""

    __slots__ = ("lazy",)

    def __init__(self, lazy: _Lazy) -> None:
        self.lazy = lazy

    def __get__(self, value: "Any", owner: type) -> "Any":
        if owner is not self.lazy.cls or value is not None:
            raise AttributeError("__signature__")
        inspect = load("inspect")

        return inspect.signature(self.lazy.complete())


def _is_class_variable(annotation: "Any") -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    kind = getattr(annotation, "__origin__", annotation)
    return getattr(kind, "_name", None) == "ClassVar"


def _is_unusual(annotation: "Any") -> bool:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", type(annotation).__name__)
    return "InitVar" in name or "KW_ONLY" in name


def _fields_of(cls: type, body: "dict[str, Any]", words: "dict[str, Any]") -> "dict[str, _Field] | None":
    """All its fields, those of its bases first; None if the standard decorator has to see to it."""
    fields: dict[str, _Field] = {}
    for base in cls.__mro__[-2:0:-1]:
        lazy = base.__dict__.get("__lazy__")
        if lazy is not None:
            fields |= lazy.fields
        elif "__dataclass_fields__" in base.__dict__:
            return None
    for name, annotation in body.get("__annotations__", {}).items():
        if _is_unusual(annotation):
            return None
        if _is_class_variable(annotation):
            continue
        given = body.get(name, _MISSING)
        if isinstance(given, _Given) and not given.words.keys() <= _PLAIN:
            return None
        each = _Field(name, given, bool(words.get("kw_only")))
        if not each.has_init and (each.default is not _MISSING or each.factory is not _MISSING):
            return None
        if each.default is not _MISSING and type(each.default).__hash__ is None:
            return None  # which it refuses
        fields[name] = each
    seen = False
    for each in fields.values():
        if not each.is_keyword and each.has_init:
            has_default = each.default is not _MISSING or each.factory is not _MISSING
            if seen and not has_default:
                return None  # which it refuses
            seen = seen or has_default
    return fields


def _lazily(cls: type, words: "dict[str, Any]") -> type:
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    fields = None
    if words.keys() <= _USUAL and words.get("slots") and not {"__init__", "__setattr__", "__delattr__"} & body.keys():
        fields = _fields_of(cls, body, words)
    if fields is None:
        return _at_once(cls, body, words)
    lazy = _Lazy(body, fields, words)
    own = lazy.own
    taken = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    made = {name: value for name, value in body.items() if name not in own}
    made["__slots__"] = tuple(name for name in own if name not in taken)
    _add_methods(made, lazy)
    lazy.cls = type(cls)(cls.__name__, cls.__bases__, made)
    lazy.cls.__qualname__ = cls.__qualname__
    return lazy.cls  # type: ignore[no-any-return]  # a class


def _at_once(cls: type, body: "dict[str, Any]", words: "dict[str, Any]") -> type:
    dataclasses = load("dataclasses")

    for name, value in body.items():
        if isinstance(value, _Given):
            setattr(cls, name, _standard(value))
    return dataclasses.dataclass(**words)(cls)  # type: ignore[no-any-return]  # a class


def _add_methods(body: "dict[str, Any]", lazy: _Lazy) -> None:
    def __init__(self: "Any", /, *args: "Any", **named: "Any") -> None:
        lazy.calls += 1
        if lazy.calls < _WORTH_COMPILING and lazy.fill(self, args, named):
            return
        init = lazy.make_init()
        lazy.cls.__init__ = init
        init(self, *args, **named)  # which also says what is wrong with the arguments

    body["__lazy__"] = lazy
    body["__init__"] = __init__
    body["__match_args__"] = tuple(each.name for each in lazy.fields.values() if each.has_init and not each.is_keyword)
    body["__dataclass_fields__"] = _OfTwin(lazy, "__dataclass_fields__")
    body["__dataclass_params__"] = _OfTwin(lazy, "__dataclass_params__")
    body["__signature__"] = _Signature(lazy)
    if lazy.words.get("repr", True) and "__repr__" not in body:
        body["__repr__"] = _by_twin(lazy, "__repr__")
    if lazy.words.get("order"):
        body |= {name: _by_twin(lazy, name) for name in ("__lt__", "__le__", "__gt__", "__ge__")}
    is_frozen = lazy.words.get("frozen")
    if lazy.words.get("eq", True):
        has_own_hash = body.get("__hash__") is not None
        if "__eq__" not in body:
            body["__eq__"] = _when_called(lazy, "__eq__", lazy.make_eq)
        if not has_own_hash:
            body["__hash__"] = _when_called(lazy, "__hash__", lazy.make_hash) if is_frozen else None
    if is_frozen:
        _freeze(body, lazy)


def _by_twin(lazy: _Lazy, name: str) -> "Callable[..., Any]":
    return _when_called(lazy, name, lambda: getattr(lazy.complete(), name))


def _when_called(lazy: _Lazy, name: str, make: "Callable[[], Any]") -> "Callable[..., Any]":
    def method(self: "Any", *args: "Any") -> "Any":
        found = make()
        setattr(lazy.cls, name, found)
        return found(self, *args)

    return method


def _freeze(body: "dict[str, Any]", lazy: _Lazy) -> None:
    def __setattr__(self: "Any", name: str, value: "Any") -> None:
        if type(self) is lazy.cls or name in lazy.fields:
            _refuse(f"cannot assign to field {name!r}")
        super(lazy.cls, self).__setattr__(name, value)

    def __delattr__(self: "Any", name: str) -> None:
        if type(self) is lazy.cls or name in lazy.fields:
            _refuse(f"cannot delete field {name!r}")
        super(lazy.cls, self).__delattr__(name)

    def __getstate__(self: "Any") -> "list[Any]":
        return [getattr(self, name) for name in lazy.fields]

    def __setstate__(self: "Any", state: "list[Any]") -> None:
        for name, value in zip(lazy.fields, state, strict=False):
            object.__setattr__(self, name, value)

    body["__setattr__"], body["__delattr__"] = __setattr__, __delattr__
    body.setdefault("__getstate__", __getstate__)
    body.setdefault("__setstate__", __setstate__)


def _refuse(why: str) -> None:
    raise load("dataclasses").FrozenInstanceError(why)


def field_names(kind: type) -> "tuple[str, ...]":
    """The names of its fields, in order: all that is wanted of `dataclasses.fields` as a rule."""
    lazy = kind.__dict__.get("__lazy__")
    if lazy is None:
        return tuple(each.name for each in load("dataclasses").fields(kind))
    return tuple(lazy.fields)


if not TYPE_CHECKING:
    if sys.version_info[:2] > _LAST_TRIED:
        from dataclasses import dataclass, field, replace
    else:

        def dataclass(cls=None, /, **words):
            """As `dataclasses.dataclass`."""
            return _lazily(cls, words) if cls is not None else lambda later: _lazily(later, words)

        def field(**words):
            """As `dataclasses.field`."""
            return _Given(words)

        def replace(value, /, **changes):
            """As `dataclasses.replace`."""
            lazy = getattr(type(value), "__lazy__", None)
            if lazy is None:
                return load("dataclasses").replace(value, **changes)
            for name, each in lazy.fields.items():
                if not each.has_init:
                    if name in changes:
                        raise ValueError(
                            f"field {name} is declared with init=False, it cannot be specified with replace()"
                        )
                elif name not in changes:
                    changes[name] = getattr(value, name)
            return type(value)(**changes)
