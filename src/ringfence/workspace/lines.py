"""Two texts as lines: what they share, where they differ in hunks, and what comes out if only some hunks are taken.

Matching goes in three steps, so that no text, however it was made up, takes long: equal lines at both ends; then lines
that occur once in each text and in the same order (as in patience diff); and between those, where little is left, the
exact matcher of the standard library. A gap that is large and shares no single line counts as wholly different.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from ringfence.errors import InvalidArgument
from ringfence.values.change import FileHunks, Hunk

CONTEXT_LINES = 3
_SMALL_GAP_LINES = 400
"""Up to here the exact matcher, which may take the product of both sides, answers at once."""


class LineMatch(NamedTuple):
    """So many lines are the same, from here in one text and from there in the other."""

    old: int
    new: int
    length: int


def split_lines(text: bytes) -> list[bytes]:
    """Lines with their ends; the last may have none. Only a newline ends a line."""
    lines = text.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def matches(old: list[bytes], new: list[bytes]) -> list[LineMatch]:
    """Stretches that both have, in order, apart from each other; closed by an empty one at both ends."""
    found: list[LineMatch] = []
    for match in _matches(old, new):
        last = found[-1] if found else None
        if last and last.old + last.length == match.old and last.new + last.length == match.new:
            found[-1] = LineMatch(last.old, last.new, last.length + match.length)
        else:
            found.append(match)
    return [*found, LineMatch(len(old), len(new), 0)]


def hunks(old: bytes, new: bytes, context: int = CONTEXT_LINES) -> tuple[Hunk, ...]:
    """Where two texts differ."""
    one, other = split_lines(old), split_lines(new)
    return tuple(_hunk(group, one, other, context) for group in _groups(_differences(matches(one, other)), context))


def mark_of(old: bytes, new: bytes) -> str:
    """Names the two texts that hunks were made from."""
    digest = hashlib.blake2b(old, digest_size=16, key=b"old")
    digest.update(hashlib.blake2b(new, digest_size=16, key=b"new").digest())
    return digest.hexdigest()


def file_hunks(path: str, old: bytes, new: bytes) -> FileHunks:
    return FileHunks(path, mark_of(old, new), hunks(old, new))


def take_hunks(old: bytes, new: bytes, numbers: Iterable[int]) -> bytes:
    """The old text with these of the hunks, by number, as in the new one.

    Raises:
        InvalidArgument: there is no hunk of that number.
    """
    every = hunks(old, new)
    chosen = frozenset(numbers)
    if unknown := chosen - frozenset(range(len(every))):
        raise InvalidArgument(f"there is no hunk {min(unknown)}", hint=f"there are {len(every)}, counted from 0")
    lines = split_lines(old)
    taken: list[bytes] = []
    at = 0
    for number, hunk in enumerate(every):
        taken += lines[at : hunk.old_start]
        at = hunk.old_start + hunk.old_lines
        skipped = b"-" if number in chosen else b"+"
        taken += [line[1:] for line in hunk.lines if not line.startswith(skipped)]
    taken += lines[at:]
    return b"".join(taken)


# --- matching ---------------------------------------------------------------------------------------------------------


def _matches(old: list[bytes], new: list[bytes]) -> Iterator[LineMatch]:
    """Every gap is narrowed from its ends, then cut at its anchors; what is left is small or wholly different."""
    waiting = [(0, len(old), 0, len(new))]
    while waiting:
        low, high, start, end = waiting.pop()
        first = _shared(old, new, low, high, start, end)
        if first:
            yield LineMatch(low, start, first)
            low, start = low + first, start + first
        last = _shared_at_end(old, new, low, high, start, end)
        if last:
            # It comes after everything in between, hence from the stack.
            if low < high - last or start < end - last:
                waiting.append((high - last, high, end - last, end))
                waiting.append((low, high - last, start, end - last))
            else:
                yield LineMatch(low, start, last)
            continue
        if low == high or start == end:
            continue
        anchors = _anchors(old, new, low, high, start, end)
        if anchors:
            waiting += reversed(_cut(anchors, low, high, start, end))
        elif high - low + end - start <= _SMALL_GAP_LINES:
            matcher = SequenceMatcher(None, old[low:high], new[start:end], autojunk=False)
            for here, there, count in matcher.get_matching_blocks()[:-1]:
                yield LineMatch(low + here, start + there, count)


def _shared(old: list[bytes], new: list[bytes], low: int, high: int, start: int, end: int) -> int:
    most = min(high - low, end - start)
    count = 0
    while count < most and old[low + count] == new[start + count]:
        count += 1
    return count


def _shared_at_end(old: list[bytes], new: list[bytes], low: int, high: int, start: int, end: int) -> int:
    most = min(high - low, end - start)
    count = 0
    while count < most and old[high - 1 - count] == new[end - 1 - count]:
        count += 1
    return count


def _anchors(old: list[bytes], new: list[bytes], low: int, high: int, start: int, end: int) -> list[tuple[int, int]]:
    """The longest run of lines that are unique on both sides and in the same order."""
    here, there = Counter(old[low:high]), Counter(new[start:end])
    places = {new[at]: at for at in range(start, end) if there[new[at]] == 1}
    pairs = [(at, places[old[at]]) for at in range(low, high) if here[old[at]] == 1 and old[at] in places]
    return _longest_rising(pairs)


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    tails: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tails, place)
        before.append(last[at - 1] if at else -1)
        if at == len(tails):
            tails.append(place)
            last.append(number)
        else:
            tails[at], last[at] = place, number
    chain: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _cut(anchors: list[tuple[int, int]], low: int, high: int, start: int, end: int) -> list[tuple[int, int, int, int]]:
    """Gaps that each begin with an anchor; the first may begin with none."""
    starts = [(low, start), *anchors] if anchors[0] != (low, start) else anchors
    ends = [*starts[1:], (high, end)]
    return [(one, other, here, there) for (one, here), (other, there) in zip(starts, ends, strict=True)]


# --- hunks ------------------------------------------------------------------------------------------------------------


class _Difference(NamedTuple):
    old: int
    old_end: int
    new: int
    new_end: int


def _differences(found: list[LineMatch]) -> Iterator[_Difference]:
    old = new = 0
    for match in found:
        if old < match.old or new < match.new:
            yield _Difference(old, match.old, new, match.new)
        old, new = match.old + match.length, match.new + match.length


def _groups(differences: Iterable[_Difference], context: int) -> Iterator[list[_Difference]]:
    """Differences whose surroundings touch belong together."""
    group: list[_Difference] = []
    for difference in differences:
        if group and difference.old - group[-1].old_end > 2 * context:
            yield group
            group = []
        group.append(difference)
    if group:
        yield group


def _hunk(group: list[_Difference], old: list[bytes], new: list[bytes], context: int) -> Hunk:
    before = min(context, group[0].old)
    after = min(context, len(old) - group[-1].old_end)
    lines: list[bytes] = []
    at = group[0].old - before
    for difference in group:
        lines += [b" " + line for line in old[at : difference.old]]
        lines += [b"-" + line for line in old[difference.old : difference.old_end]]
        lines += [b"+" + line for line in new[difference.new : difference.new_end]]
        at = difference.old_end
    lines += [b" " + line for line in old[at : at + after]]
    return Hunk(group[0].old - before, group[0].new - before, tuple(lines))
