"""Changes as a patch that `git apply` takes: texts by hunks, binary files whole, renames, modes and links.

Git knows files and links, one bit of a mode (may it be run) and no directories; what it cannot say, and what is too
large to be read by anybody, is named in `left_out`. What is refused is in no patch.

The result is bytes: a patch holds the bytes of the files. Show it to a person only with its control characters written
out.
"""

import base64
import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator

from ringfence.dataclass import dataclass
from ringfence.errors import PermissionDenied, RingfenceError
from ringfence.values.change import Change, ChangeKind, CommitRefusal, FileHunks, Node, NodeKind
from ringfence.workspace.diff import is_binary
from ringfence.workspace.layers import Layers, open_layers
from ringfence.workspace.lines import file_hunks, hunks, split_lines
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.tree import split

LARGEST_FILE_BYTES = 1024 * 1024
"""Of a file that is shown whole; more is nothing that a person reads."""
_NO_NEWLINE = b"\\ No newline at end of file\n"
_NOTHING = b"/dev/null"
_BINARY_LINE_BYTES = 52
_ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch that `git apply` takes, and what it cannot say."""

    data: bytes
    left_out: tuple[CommitRefusal, ...]


def patch(shadow: Shadow, found: Iterable[Change], *, largest_file_bytes: int = LARGEST_FILE_BYTES) -> Patch:
    """The changes, as `changes` gave them, as one patch against what the host has now.

    Raises:
        PermissionDenied: something of it cannot be read any more.
    """
    parts: list[bytes] = []
    left_out: list[CommitRefusal] = []
    every = tuple(found)
    full = frozenset(split(change.path)[0] for change in every)
    try:
        with open_layers(shadow) as layers:
            for change in every:
                if (refusal := _why_left_out(change, largest_file_bytes, is_empty=change.path not in full)) is not None:
                    left_out.append(refusal)
                elif not _is_directory_only(change):
                    parts += _parts(layers, change)
    except RingfenceError:
        raise
    except OSError as fault:
        raise PermissionDenied(f"cannot read shadow {shadow.id}: {fault}", hint="look at the changes again") from fault
    return Patch(b"".join(parts), tuple(left_out))


def hunks_of(shadow: Shadow, change: Change) -> FileHunks | None:
    """The hunks of one change, to choose from; None if it is no change from one text to another."""
    if not is_text_change(change):
        return None
    with open_layers(shadow) as layers:
        return file_hunks(change.path, layers.lower.read(change.path), layers.upper.read(change.path))


def is_text_change(change: Change) -> bool:
    return (
        change.kind is ChangeKind.CHANGED
        and change.is_content
        and not change.is_binary
        and not change.is_type_change
        and not change.refused
        and max(node.size_bytes for node in (change.old, change.new) if node) <= LARGEST_FILE_BYTES
    )


def quoted(path: str) -> bytes:
    """A name as git writes it: in quotes, with escapes, if anything in it could be misread."""
    raw = os.fsencode(path)
    shown = b"".join(_ESCAPES.get(byte) or (bytes([byte]) if 32 <= byte < 127 else b"\\%03o" % byte) for byte in raw)
    return raw if shown == raw else b'"%b"' % shown


def _why_left_out(change: Change, largest_bytes: int, *, is_empty: bool) -> CommitRefusal | None:
    if change.refused:
        return CommitRefusal(change.path, change.refused, "never committed")
    nodes = [node for node in (change.old, change.new) if node is not None]
    if change.kind is not ChangeKind.RENAMED and max(node.size_bytes for node in nodes) > largest_bytes:
        size = max(node.size_bytes for node in nodes)
        return CommitRefusal(change.path, f"holds {size} bytes", f"at most {largest_bytes}", "raise largest_file_bytes")
    if change.new is not None and change.new.is_directory:
        if change.is_mode_change:
            return CommitRefusal(change.path, "is a directory whose mode was changed", "git knows no directories")
        if is_empty and change.kind is ChangeKind.ADDED:
            return CommitRefusal(change.path, "is a new, empty directory", "git knows no directories")
    elif _says_nothing(change):
        return CommitRefusal(change.path, "has another mode", "git knows only whether it may be run")
    return None


def _says_nothing(change: Change) -> bool:
    """Whether git sees no difference."""
    if change.kind is not ChangeKind.CHANGED or not change.is_mode_change or change.is_content:
        return False
    return change.old is not None and change.new is not None and _mode(change.old) == _mode(change.new)


def _is_directory_only(change: Change) -> bool:
    return all(node is None or node.is_directory for node in (change.old, change.new))


def _parts(layers: Layers, change: Change) -> Iterator[bytes]:
    """One change, as one or two sections: another type is a file that goes and one that comes."""
    old, new = change.old, change.new
    if change.is_type_change:
        if old is not None and not old.is_directory:
            yield from _section(layers, change, old, None)
        if new is not None and not new.is_directory:
            yield from _section(layers, change, None, new)
    else:
        yield from _section(layers, change, old, new)


def _section(layers: Layers, change: Change, old: Node | None, new: Node | None) -> Iterator[bytes]:
    source = change.source or change.path
    yield b"diff --git %b %b\n" % (_side(b"a/", source), _side(b"b/", change.path))
    before = b"" if old is None else _content(layers, source, old, is_old=True)
    after = b"" if new is None else _content(layers, change.path, new, is_old=False)
    if old is None and new is not None:
        yield b"new file mode %b\n" % _mode(new)
    elif new is None and old is not None:
        yield b"deleted file mode %b\n" % _mode(old)
    elif old is not None and new is not None and _mode(old) != _mode(new):
        yield b"old mode %b\nnew mode %b\n" % (_mode(old), _mode(new))
    if change.kind is ChangeKind.RENAMED:
        yield b"similarity index 100%%\nrename from %b\nrename to %b\n" % (quoted(source), quoted(change.path))
    if before == after and old is not None and new is not None:
        return
    yield b"index %b..%b%b\n" % (_object(before, old), _object(after, new), _same_mode(old, new))
    if is_binary(before) or is_binary(after):
        yield b"GIT binary patch\n%b%b" % (_literal(after), _literal(before))
    elif before != after:
        yield b"--- %b\n" % (_NOTHING if old is None else _side(b"a/", source, tab=True))
        yield b"+++ %b\n" % (_NOTHING if new is None else _side(b"b/", change.path, tab=True))
        yield from _text(before, after)


def _text(before: bytes, after: bytes) -> Iterator[bytes]:
    for hunk in hunks(before, after):
        yield b"@@ -%b +%b @@\n" % (_range(hunk.old_start, hunk.old_lines), _range(hunk.new_start, hunk.new_lines))
        for line in hunk.lines:
            yield line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE


def _range(start: int, count: int) -> bytes:
    """As patches count: lines from 1, and a stretch of none lies behind the line before it."""
    first = start + 1 if count else start
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _side(prefix: bytes, path: str, *, tab: bool = False) -> bytes:
    name = quoted(os.fsdecode(prefix) + path)
    # A blank would end the name for other readers of patches; git itself writes the tab.
    return name + b"\t" if tab and b" " in name and not name.startswith(b'"') else name


def _mode(node: Node) -> bytes:
    if node.kind is NodeKind.LINK:
        return b"120000"
    return b"100755" if node.mode & 0o100 else b"100644"


def _same_mode(old: Node | None, new: Node | None) -> bytes:
    return b" " + _mode(new) if old is not None and new is not None and _mode(old) == _mode(new) else b""


def _content(layers: Layers, path: str, node: Node, *, is_old: bool) -> bytes:
    if node.kind is NodeKind.LINK:
        return os.fsencode(node.target)
    return (layers.lower if is_old else layers.upper).read(path)


def _object(content: bytes, node: Node | None) -> bytes:
    """How git names the content; all zeros for none."""
    if node is None:
        return b"0" * 40
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest().encode()


def _literal(content: bytes) -> bytes:
    packed = zlib.compress(content)
    lines = [b"literal %d\n" % len(content)]
    for at in range(0, len(packed), _BINARY_LINE_BYTES):
        piece = packed[at : at + _BINARY_LINE_BYTES]
        length = len(piece)
        code = ord("A") + length - 1 if length <= 26 else ord("a") + length - 27
        lines.append(b"%c%b\n" % (code, base64.b85encode(piece, pad=True)))
    return b"".join([*lines, b"\n"])


def line_counts(shadow: Shadow, found: Iterable[Change]) -> dict[str, tuple[int, int]]:
    """How many lines came and went, by path; what is not text, or too large to be counted, is missing."""
    counts: dict[str, tuple[int, int]] = {}
    with open_layers(shadow) as layers:
        for change in found:
            nodes = [node for node in (change.old, change.new) if node is not None and node.kind is NodeKind.FILE]
            is_small = nodes and max(node.size_bytes for node in nodes) <= LARGEST_FILE_BYTES
            if is_small and not change.is_binary and not change.refused:
                counts[change.path] = _line_counts(layers, change)
    return counts


def _line_counts(layers: Layers, change: Change) -> tuple[int, int]:
    before = layers.lower.read(change.source or change.path) if _is_file(change.old) else b""
    after = layers.upper.read(change.path) if _is_file(change.new) else b""
    if not before or not after:
        return len(split_lines(after)), len(split_lines(before))
    lines = [line for hunk in hunks(before, after, context=0) for line in hunk.lines]
    came = sum(line.startswith(b"+") for line in lines)
    return came, len(lines) - came


def _is_file(node: Node | None) -> bool:
    return node is not None and node.kind is NodeKind.FILE
