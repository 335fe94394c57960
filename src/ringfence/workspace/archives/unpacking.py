"""Unpack an archive into a workspace: all of it, or nothing.

1. Every member is read and checked, and its content lies in a directory of our own in the workspace, under a number.
2. Every place where a member is to go is judged by the rules. Until here nothing of the workspace has changed.
3. The members are renamed to their places, as `write` would do it.

Refused, each with the member's name: absolute names, `..`, names that come twice, a member beneath something that is no
directory, links that lead out, hard links to what is not in the archive, devices and fifos, and what the limits say.
Names that differ only by letter case or by their form in Unicode are different names, as they are to the file system.
Set-uid, set-gid and sticky bits are dropped; directories get the usual mode; times are those of the upload. A hard link
becomes a copy.

What this does not protect against: step 3 is one rename for each member. Where one fails (the agent put a directory in
the way at that moment, the disk is full), those before it stay, and the error says how many and which.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, PathAccessDenied, PathTraversalError, RingfenceError
from ringfence.workspace.archives.base import Archive, ArchiveLimits, Unpacked
from ringfence.workspace.archives.members import ArchiveMember, MemberKind, Meter, Readable, members
from ringfence.workspace.changing import fill_new, temporary_name
from ringfence.workspace.faults import translating
from ringfence.workspace.names import Asked, PathText, climb, join, parse, split
from ringfence.workspace.reading import chunks_of
from ringfence.workspace.root_handle import RootHandle

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Staged:
    """A member that was checked, and the number under which its content waits; a directory has none."""

    asked: Asked
    """Its name in the archive, and its place below the workspace."""
    names: tuple[bytes, ...]
    kind: MemberKind
    number: bytes
    target: bytes


def unpack(
    ground: RootHandle, source: Readable, into: PathText, form: Archive | None, limits: ArchiveLimits
) -> Unpacked:
    """
    Raises:
        PathTraversalError, PathAccessDenied: a member leads out or is refused; its name is the error's `path`.
        InvalidArgument: the archive is damaged or makes no sense.
    """
    asked = ground.ask(into)
    meter = Meter(limits)
    with translating(asked), _stage(ground) as stage:
        staging = _Staging(ground, stage, asked.relative)
        for member in members(source, form, meter, limits):
            staging.take(member)
        staged = staging.done
        _judge(ground, asked, staged)
        _place(ground, stage, staged)
    wrote = tuple(os.fsdecode(join(*item.names)) for item in staged if item.kind is not MemberKind.DIRECTORY)
    return Unpacked(wrote, meter.unpacked_bytes)


@contextmanager
def _stage(ground: RootHandle) -> Iterator[int]:
    """A directory of our own in the workspace, so that renames out of it stay on one file system."""
    name = temporary_name()
    os.mkdir(name, 0o700, dir_fd=ground.descriptor)
    try:
        stage = os.open(name, _OPEN_DIRECTORY, dir_fd=ground.descriptor)
        try:
            yield stage
        finally:
            for left in os.listdir(stage):
                with suppress(OSError):
                    os.unlink(left, dir_fd=stage)
            os.close(stage)
    finally:
        with suppress(OSError):
            os.rmdir(name, dir_fd=ground.descriptor)


# --- step 1 -----------------------------------------------------------------------------------------------------------


class _Staging:
    def __init__(self, ground: RootHandle, stage: int, into: bytes) -> None:
        self._ground = ground
        self._stage = stage
        self._into = into
        self._kinds: dict[tuple[bytes, ...], MemberKind] = {}
        self._numbers: dict[tuple[bytes, ...], bytes] = {}
        self.done: list[_Staged] = []

    def take(self, member: ArchiveMember) -> None:
        """Check a member against those before it, and put its content aside."""
        names = _names_of(member)
        kind = MemberKind.FILE if member.kind is MemberKind.HARD_LINK else member.kind
        if not names:
            if kind is MemberKind.DIRECTORY:  # `./`, which tar likes to begin with
                return
            raise InvalidArgument("has no name", source=repr(member.name))
        self._claim(member, names, kind)
        number = b"%d" % len(self.done)
        target = b""
        match member.kind:
            case MemberKind.FILE:
                fill_new(self._ground, self._stage, number, member.chunks, _mode_of(member))
            case MemberKind.HARD_LINK:
                self._copy(member, number)
            case MemberKind.LINK:
                target = _target_of(member)
                os.symlink(target, number, dir_fd=self._stage)
            case MemberKind.DIRECTORY:
                pass
            case MemberKind.OTHER:
                raise PathAccessDenied(
                    member.name, "is a device, a fifo or a socket", rule="archive members", hint="leave it out"
                )
        self._numbers[names] = number
        self.done.append(_Staged(self._asked(member, names), names, kind, number, target))

    def _claim(self, member: ArchiveMember, names: tuple[bytes, ...], kind: MemberKind) -> None:
        for count in range(1, len(names)):
            above = self._kinds.setdefault(names[:count], MemberKind.DIRECTORY)
            if above is not MemberKind.DIRECTORY:
                why = f"lies beneath a {above.value} of the same archive"
                raise PathAccessDenied(member.name, why, rule="archive members")
        known = self._kinds.setdefault(names, kind)
        is_again = names in self._numbers or known is not kind
        if is_again and not known is kind is MemberKind.DIRECTORY:
            raise PathAccessDenied(
                member.name, "comes twice in the archive", rule="archive members", hint="pack each name once"
            )

    def _copy(self, member: ArchiveMember, number: bytes) -> None:
        """A second name for an earlier member; a copy, as files with two names cannot be read through this API."""
        parse(member.target)
        source = self._numbers.get(split(os.fsencode(member.target)))
        if source is None or member.target.startswith("/"):
            raise PathTraversalError(member.name, f"is a hard link to {member.target!r}, which is not in the archive")
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._stage)
        try:
            size = os.fstat(descriptor).st_size
            fill_new(self._ground, self._stage, number, chunks_of(descriptor, size), _mode_of(member))
        finally:
            os.close(descriptor)

    def _asked(self, member: ArchiveMember, names: tuple[bytes, ...]) -> Asked:
        return Asked(member.name, join(self._into, *names))


def _names_of(member: ArchiveMember) -> tuple[bytes, ...]:
    _, data = parse(member.name)
    names = split(data)
    if data.startswith(b"/") or b".." in names:
        raise PathTraversalError(member.name, "leads out of the workspace", rule="archive members")
    return names


def _target_of(member: ArchiveMember) -> bytes:
    _, target = parse(member.target)
    names = split(target)
    # `..` after a name is where a chain of links could climb; at the beginning, it can be counted.
    down = [index for index, name in enumerate(names) if name != b".."]
    climbs_later = any(name == b".." for name in names[down[0] :]) if down else False
    if target.startswith(b"/") or climbs_later:
        raise _leads_out(member.name, target)
    return target


def _mode_of(member: ArchiveMember) -> int | None:
    return None if member.mode is None else stat.S_IMODE(member.mode)


def _leads_out(name: str, target: bytes) -> PathTraversalError:
    return PathTraversalError(
        name, f"is a link to {os.fsdecode(target)!r}, which may lead out of the workspace", rule="archive members"
    )


# --- steps 2 and 3 ----------------------------------------------------------------------------------------------------


def _judge(ground: RootHandle, asked: Asked, staged: list[_Staged]) -> None:
    real_places = ground.protected_places(asked)
    for item in staged:
        with translating(item.asked):
            place = ground.place_to_be(item.asked)
            ground.forbid_denied(item.asked, place)
            is_directory = item.kind is MemberKind.DIRECTORY
            ground.forbid_change(item.asked, place, is_new_directory=is_directory)
            ground.forbid_change_behind_links(item.asked, place, real_places)
            if item.kind is MemberKind.LINK and climb(split(place)[:-1], item.target) is None:
                raise _leads_out(item.asked.text, item.target)
            _forbid_wrong_kind(ground, item, place)


def _forbid_wrong_kind(ground: RootHandle, item: _Staged, place: bytes) -> None:
    """Files and links replace what is not a directory; directories join one that is there."""
    try:
        descriptor = ground.resolver(ground.descriptor, place, os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        mode = os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
    if item.kind is MemberKind.DIRECTORY:
        if not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode):
            raise PathAccessDenied(item.asked.text, "is a directory in the archive and a file here")
    elif stat.S_ISDIR(mode):
        raise PathAccessDenied(item.asked.text, "is a file in the archive and a directory here", hint="delete it first")


def _place(ground: RootHandle, stage: int, staged: list[_Staged]) -> None:
    for count, item in enumerate(staged):
        try:
            with translating(item.asked):
                _place_one(ground, stage, item)
        except RingfenceError as error:
            raise _stopped(item, error, staged[:count]) from error


def _place_one(ground: RootHandle, stage: int, item: _Staged) -> None:
    if item.kind is MemberKind.DIRECTORY:
        os.close(ground.directory(item.asked, item.asked.relative, make=True))
        return
    with ground.slot(item.asked, make_parents=True, follow=False) as slot:
        ground.forbid_change(item.asked, slot.place)
        os.rename(item.number, slot.name, src_dir_fd=stage, dst_dir_fd=slot.parent)


def _stopped(item: _Staged, error: RingfenceError, written: list[_Staged]) -> PathAccessDenied:
    names = ", ".join(repr(one.asked.text) for one in written[:_NAMES_SHOWN])
    more = f" and {len(written) - _NAMES_SHOWN} more" if len(written) > _NAMES_SHOWN else ""
    told = f"{len(written)} members were written before it: {names}{more}" if written else "nothing was written"
    stopped = PathAccessDenied(item.asked.text, f"could not be put in its place ({error.message})", hint=told)
    for one in written:
        stopped.add_note(f"written: {one.asked.text!r}")
    return stopped
