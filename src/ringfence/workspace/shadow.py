"""A shadow as a value, and its state on disk, every field of which is checked when it is read."""

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.errors import Damaged, InvalidArgument
from ringfence.policy.globs import PathRules, compiled
from ringfence.workspace.protected import ProtectedNames
from ringfence.workspace.protected import compiled as protecting
from ringfence.workspace.tree import ancestors, is_in_tree

STATE_FILE: Final = "shadow.json"
_VERSION: Final = 1
SHADOW_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{8}")


class ShadowKind(StrEnum):
    """How a shadow keeps what is changed."""

    OVERLAY = "overlay"
    COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A copy-on-write view of a project, and where it lies."""

    id: str
    """Sorts by the time it was made."""
    name: str
    """For people; may be empty."""
    lower: Path
    """The project, resolved."""
    directory: Path
    kind: ShadowKind
    why: str
    """Why it is a copy; empty for an overlay."""
    lower_inode: int
    """Of the project's top directory: another one of the same name is another project."""
    born_ns: int
    denied: tuple[str, ...]
    """The blacklist: neither seen in the shadow nor ever committed."""
    protected: tuple[str, ...]
    """Names that are committed only when somebody says so."""
    hidden: tuple[tuple[str, str], ...] = ()
    """What was hidden when it was made, each with the rule."""
    left_out: tuple[tuple[str, str], ...] = ()
    """What a copy does not have, each with the reason."""

    @property
    def upper(self) -> Path:
        return self.directory / "upper"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    @property
    def rules(self) -> PathRules:
        return compiled(self.denied)

    @property
    def protected_names(self) -> ProtectedNames:
        return protecting(self.protected)

    def denials(self) -> Callable[[str], str | None]:
        """A function that gives the rule that hides a path of the project: by its name, or since the beginning."""
        hidden, matches, top = dict(self.hidden), self.rules.matches, f"{self.lower}/"

        def denying(path: str) -> str | None:
            for place in (path, *ancestors(path)) if hidden else ():
                if place in hidden:
                    return hidden[place]
            return matches(top + path)

        return denying


_LONGEST_NAME: Final = 100
DISCARD_IT = "discard it"


def encoded(shadow: Shadow) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "id": shadow.id,
        "name": shadow.name,
        "lower": str(shadow.lower),
        "kind": shadow.kind.value,
        "why": shadow.why,
        "lower_inode": shadow.lower_inode,
        "born_ns": shadow.born_ns,
        "denied": shadow.denied,
        "protected": shadow.protected,
        "hidden": shadow.hidden,
    }


def decoded(fields: Any, directory: Path, source: str) -> Shadow:
    """Every field is looked at: a state that was tampered with must not lead a commit elsewhere."""

    def fault(what: str) -> Damaged:
        return Damaged(f"is not the state of a shadow: {what}", source=source, hint=DISCARD_IT)

    if not isinstance(fields, dict) or fields.get("version") != _VERSION:
        raise fault("another version")
    try:
        shadow = Shadow(
            id=_text(fields["id"]),
            name=_text(fields["name"]),
            lower=Path(_text(fields["lower"])),
            directory=directory,
            kind=ShadowKind(_text(fields["kind"])),
            why=_text(fields["why"]),
            lower_inode=_number(fields["lower_inode"]),
            born_ns=_number(fields["born_ns"]),
            denied=_texts(fields["denied"]),
            protected=_texts(fields["protected"]),
            hidden=_pairs(fields["hidden"]),
            left_out=_pairs(fields["left_out"]),
        )
        check_name(shadow.name)
        _ = shadow.rules, shadow.protected_names
    except (KeyError, TypeError, ValueError) as wrong:
        raise fault(str(wrong)) from wrong
    if not shadow.lower.is_absolute() or str(shadow.lower) == "/" or ".." in shadow.lower.parts:
        raise fault(f"{str(shadow.lower)!r} is not a project")
    if is_in_tree(str(directory), str(shadow.lower)):
        raise fault("the shadow lies in its own project")
    return shadow


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is not text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return tuple(map(_text, value))


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a number")
    return value


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    found: list[tuple[str, str]] = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"{pair!r} is not a pair")
        path = _text(pair[0])
        if path.startswith("/") or not path or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a path of a project")
        found.append((path, _text(pair[1])))
    return tuple(found)


def check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or not (name.isprintable() and name == name.strip()):
        raise InvalidArgument(f"{name[:_LONGEST_NAME]!r} cannot name a shadow", hint="use a short, printable name")
