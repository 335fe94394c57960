"""Where the values of secrets come from: environment, file, descriptor, command, keyring, or none: an SSH agent.

Read outside every wall. A source is named by the person who starts the box, on the command line or in their own
configuration; never by a policy that lies in the workspace, since whoever writes there could have any variable sent to
any host. A value is read when it is needed and bounded in size and time; it is in no repr, no message and no log, and
copies that we own are wiped.

What this does not protect against: Python's own copies of a value stay in memory until they are written over.
"""

import asyncio
import importlib
import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from ringfence.dataclass import dataclass, field
from ringfence.egress.base import SecretValue
from ringfence.errors import InvalidArgument, InvalidConfig, NotInstalled
from ringfence.manager.secret_presets import AWS_VARIABLES

LONGEST_BYTES: Final = 64 * 1024
SECONDS: Final = 7.0
"""Less than the proxy waits, so that it hears why."""
USUAL_TTL_SECONDS: Final = 300.0
"""After which a command is asked again."""
KINDS: Final = ("env", "file", "fd", "command", "keyring", "agent")
SOURCE_FORM: Final = "env:, file:, fd:, command:, keyring: or agent:"
_PIECE: Final = 4096


class SourceFailed(InvalidConfig):
    """A source that gives no value; says why, and never what it gave."""


class _TooSlow(SourceFailed):
    """The end did not come in time."""


class Source(Protocol):
    """Where a value comes from. Its repr names the place and holds no value."""

    async def read(self) -> SecretValue:
        """
        Raises:
            SourceFailed: it gives none.
        """


@dataclass(frozen=True, slots=True)
class EnvironmentSource:
    """`env:NAME`: a variable of our own; `env:AWS_*` the pair of a key of AWS."""

    name: str
    environment: Mapping[str, str] = field(repr=False)

    async def read(self) -> SecretValue:
        if self.name == "AWS_*":
            found = [self.environment.get(name, "") for name in AWS_VARIABLES]
            if not found[0] or not found[1]:
                raise SourceFailed("AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set")
            return SecretValue(":".join(part for part in found if part).encode())
        value = self.environment.get(self.name, "")
        if not value:
            raise SourceFailed(f"the variable {self.name} is not set")
        return SecretValue(os.fsencode(value))


@dataclass(frozen=True, slots=True)
class FileSource:
    """`file:PATH`: a file that nobody else may read, outside whatever the box may write."""

    path: str
    writable: tuple[str, ...] = ()

    async def read(self) -> SecretValue:
        real = os.path.realpath(os.path.expanduser(self.path))
        if inside := is_below(real, self.writable):
            raise SourceFailed(f"the file lies below {inside}, which the box may write", hint="keep it elsewhere")
        try:
            descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as fault:
            raise SourceFailed(f"the file cannot be opened: {os.strerror(fault.errno or 0)}") from None
        try:
            _check_file(os.fstat(descriptor))
            return SecretValue(_stripped(_read_all(descriptor, time.monotonic() + SECONDS)))
        finally:
            os.close(descriptor)


def _check_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SourceFailed("it is no regular file")
    if found.st_uid not in (0, os.geteuid()):
        raise SourceFailed("the file belongs to somebody else")
    if found.st_mode & 0o077:
        raise SourceFailed("others may read or change the file", hint="chmod 600 it")
    if found.st_size > LONGEST_BYTES:
        raise SourceFailed("the file is too large")


class DescriptorSource:
    """`fd:N`: a descriptor that whoever started us left open. It is read once, to its end, and closed."""

    __slots__ = ("_kept", "_number")

    def __init__(self, number: int) -> None:
        self._number = number
        self._kept = bytearray()

    def __repr__(self) -> str:
        return f"DescriptorSource({self._number})"

    async def read(self) -> SecretValue:
        if not self._kept:
            found = await asyncio.to_thread(self._read)
            self._kept[:] = found
        return SecretValue(bytes(self._kept))

    def _read(self) -> bytes:
        try:
            data = _read_all(self._number, time.monotonic() + SECONDS)
        except OSError as fault:
            raise SourceFailed(f"the descriptor cannot be read: {os.strerror(fault.errno or 0)}") from None
        with suppress(OSError):
            os.close(self._number)
        return _stripped(data)

    def wipe(self) -> None:
        self._kept[:] = b"\0" * len(self._kept)


@dataclass(frozen=True, slots=True)
class CommandSource:
    """`command:PROGRAM ARGUMENT ...`: what a program prints, without a shell, asked again after a while."""

    argv: tuple[str, ...]
    ttl_seconds: float = USUAL_TTL_SECONDS
    writable: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = SECONDS
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    async def read(self) -> SecretValue:
        program = shutil.which(self.argv[0], path=self.environment.get("PATH", os.defpath))
        if program is None:
            raise SourceFailed(f"there is no program {self.argv[0]!r}")
        program = os.path.abspath(program)
        if inside := is_below(os.path.realpath(program), self.writable) or is_below(program, self.writable):
            raise SourceFailed(f"the program lies below {inside}, which the box may write")
        started = self.clock()
        data = await asyncio.to_thread(self._output, program)
        return SecretValue(_stripped(data), started + self.ttl_seconds)

    def _output(self, program: str) -> bytes:
        until = time.monotonic() + self.seconds
        try:
            child = subprocess.Popen(
                (self.argv[0], *self.argv[1:]),
                executable=program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it may hold what is nobody's business
                cwd="/",  # never where the box may have put something
                env=dict(self.environment),
                start_new_session=True,
            )
        except OSError as fault:
            raise SourceFailed(f"the program cannot be started: {os.strerror(fault.errno or 0)}") from None
        assert child.stdout is not None
        with child.stdout:
            try:
                data = _read_all(child.stdout.fileno(), until)
                code = child.wait(max(0.0, until - time.monotonic()))
            except (subprocess.TimeoutExpired, _TooSlow):
                raise SourceFailed(f"the program did not end in {self.seconds:g} s") from None
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)  # also whatever it left behind
                child.wait()
        if code != 0:
            raise SourceFailed(f"the program ended with {code}")
        return data


@dataclass(frozen=True, slots=True)
class KeyringSource:
    """`keyring:SERVICE/NAME`: the keyring of the person's session, by the package `keyring`."""

    service: str
    name: str

    async def read(self) -> SecretValue:
        try:
            async with asyncio.timeout(SECONDS):
                value = await asyncio.to_thread(self._get)
        except TimeoutError:
            raise SourceFailed(f"the keyring did not answer in {SECONDS:g} s") from None
        if not value:
            raise SourceFailed(f"the keyring has no {self.service}/{self.name}")
        return SecretValue(value.encode())

    def _get(self) -> str | None:
        try:
            keyring = importlib.import_module("keyring")
            errors = importlib.import_module("keyring.errors")
        except ImportError:
            raise NotInstalled("the keyring needs a package", hint="pip install keyring") from None
        try:
            found: str | None = keyring.get_password(self.service, self.name)
        except errors.KeyringError as fault:
            raise SourceFailed(f"the keyring refused: {type(fault).__name__}") from None
        return found


@dataclass(frozen=True, slots=True)
class AgentSource:
    """`agent:` or `agent:SHA256:...`: the person's SSH agent, which signs and never gives a key out."""

    socket: str
    fingerprint: str = ""
    """Of the one key that is meant; any, if it is empty."""

    async def read(self) -> SecretValue:
        """Where it is, which is no secret; that it is there is what is asked."""
        try:
            is_socket = bool(self.socket) and stat.S_ISSOCK(os.stat(self.socket).st_mode)
        except OSError:
            is_socket = False
        if not is_socket:
            raise SourceFailed("there is no SSH agent", hint="start one (ssh-agent), so that SSH_AUTH_SOCK names it")
        return SecretValue(b"agent at " + os.fsencode(self.socket))


def parse_source(
    name: str,
    written: str,
    environment: Mapping[str, str],
    *,
    writable: tuple[str, ...] = (),
    ttl_seconds: float = USUAL_TTL_SECONDS,
) -> Source:
    """The source that a text such as `env:GH_TOKEN` means.

    Args:
        name: of the secret, for messages.
        writable: directories that the box may write.

    Raises:
        InvalidArgument: it means none. Never shows the text: it may be the secret itself, typed by mistake.
    """
    kind, colon, place = written.partition(":")
    if kind == "agent" and colon:
        if place and not place.startswith("SHA256:"):
            raise InvalidArgument(f"secret {name}: write agent:, or agent:SHA256:FINGERPRINT", argument="secret")
        return AgentSource(environment.get("SSH_AUTH_SOCK", ""), place)
    if kind not in KINDS or not colon or not place.strip():
        raise InvalidArgument(
            f"secret {name}: the source has no kind", argument="secret", hint=f"begin it with {SOURCE_FORM}"
        )
    if kind == "env":
        return EnvironmentSource(place, environment)
    if kind == "file":
        return FileSource(os.path.abspath(os.path.expanduser(place)), writable)
    if kind == "keyring":
        service, slash, entry = place.rpartition("/")
        if not slash or not service or not entry:
            raise InvalidArgument(f"secret {name}: write keyring:SERVICE/NAME", argument="secret")
        return KeyringSource(service, entry)
    if kind == "fd":
        if not place.isdigit() or int(place) in (1, 2) or len(place) > 6:
            raise InvalidArgument(f"secret {name}: {place!r} is no descriptor to read from", argument="secret")
        return DescriptorSource(int(place))
    try:
        argv = tuple(shlex.split(place))
    except ValueError as fault:
        raise InvalidArgument(f"secret {name}: the command cannot be split: {fault}", argument="secret") from None
    return CommandSource(argv, ttl_seconds, writable, environment)


def is_below(path: str, directories: tuple[str, ...]) -> str:
    """The first of the directories that holds the path; else empty."""
    for directory in directories:
        real = os.path.realpath(directory)
        if path == real or path.startswith(real.rstrip("/") + "/"):
            return directory
    return ""


def _read_all(descriptor: int, until: float) -> bytes:
    """Everything up to the end, within a deadline."""
    data = bytearray()
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while True:
        left = until - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            raise _TooSlow(f"its end did not come in {SECONDS:g} s")
        piece = os.read(descriptor, _PIECE)
        if not piece:
            break
        data += piece
        if len(data) > LONGEST_BYTES:
            raise SourceFailed("it is too long")
    found = bytes(data)
    data[:] = b"\0" * len(data)
    return found


def _stripped(data: bytes) -> bytes:
    """Without the end of line that editors and programs add."""
    return data.removesuffix(b"\n").removesuffix(b"\r")
