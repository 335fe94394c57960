"""Three-way merge of texts: what two people did to the same base, as long as they did it in different places.

There are no conflict markers: a file with markers in it is a broken file, and nobody asked for one. Either the merge is
clean or there is none.
"""

from collections.abc import Iterator

from ringfence.workspace.diff import is_binary
from ringfence.workspace.lines import LineMatch, matches, split_lines


def merged(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """The base with the changes of both; None if they overlap or touch, or one of the three is not text."""
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if any(map(is_binary, (base, ours, theirs))):
        return None
    old, one, other = split_lines(base), split_lines(ours), split_lines(theirs)
    result: list[bytes] = []
    at = at_one = at_other = 0
    for start, in_one, in_other, count in _shared_by_all(matches(old, one), matches(old, other)):
        was, left, right = old[at:start], one[at_one:in_one], other[at_other:in_other]
        if left == right or right == was:
            result += left
        elif left == was:
            result += right
        else:
            return None
        result += old[start : start + count]
        at, at_one, at_other = start + count, in_one + count, in_other + count
    if any(not line.endswith(b"\n") for line in result[:-1]):
        return None  # the last line of one side would run into what the other has added
    return b"".join(result)


def _shared_by_all(one: list[LineMatch], other: list[LineMatch]) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of the base that both sides still have, and where; an empty one closes the list."""
    left, right = 0, 0
    while left < len(one) and right < len(other):
        here, there = one[left], other[right]
        start = max(here.old, there.old)
        end = min(here.old + here.length, there.old + there.length)
        is_close = left == len(one) - 1 and right == len(other) - 1
        if start < end or is_close:
            yield start, here.new + start - here.old, there.new + start - there.old, max(end - start, 0)
        if here.old + here.length < there.old + there.length or (left < len(one) - 1 and right == len(other) - 1):
            left += 1
        else:
            right += 1
