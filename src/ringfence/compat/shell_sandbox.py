"""Document 000 (every shell command of an agent in a sandbox) by its own names.

    result = await SandboxExecutor().run("ls -la", "/home/user/projects")
    print(result.stdout, result.exitCode, result.blocked, result.blockedReason)

The document is written in TypeScript; its names are kept as they are (`exitCode`), and each has Python's spelling
beside it (`exit_code`). An object such as `{command, cwd}` may be a mapping or a `BashParams`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ringfence.dataclass import dataclass, field
from ringfence.errors import InitializationFailed, InvalidConfig
from ringfence.manager.configuring import home_directory, load_config
from ringfence.manager.sandbox import Sandbox
from ringfence.policy.config import SandboxConfig as OurConfig
from ringfence.policy.config import config_location, parse_config
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.expanding import expand
from ringfence.values.outcome import Result

__all__ = [
    "DEFAULT_CONFIG",
    "BashParams",
    "BashTool",
    "CommandResult",
    "FilesystemPolicy",
    "LinuxSandbox",
    "MacOSSandbox",
    "NetworkPolicy",
    "PlatformSandbox",
    "SandboxConfig",
    "SandboxExecutor",
    "SandboxPolicy",
    "SandboxResult",
    "config_path",
    "getPlatformSandbox",
    "get_platform_sandbox",
    "loadSandboxConfig",
    "load_sandbox_config",
    "mergeConfig",
    "merge_config",
]

StrPath = str | os.PathLike[str]
PRIVATE_TMP: Final = "/tmp"
"""Every box has a temporary directory of its own, in memory; the host's is not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesystemPolicy:
    """Which files may be reached. The built-in blacklist is in every one, first."""

    whitelist: Sequence[str] = ()
    """Directories that may be read and written, besides the working directory and the box's own temporary one."""
    blacklist: Sequence[str] = BLACKLIST
    """Hidden wherever they lie; beats the whitelist."""
    allowReadOutside: bool = False
    """Whether the rest of the host may be read, but for the blacklist."""

    def __post_init__(self) -> None:
        own = tuple(row for row in self.blacklist if row not in BLACKLIST)
        object.__setattr__(self, "whitelist", tuple(self.whitelist))
        object.__setattr__(self, "blacklist", (*BLACKLIST, *own))

    @property
    def allow_read_outside(self) -> bool:
        return self.allowReadOutside


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """There is no network inside, whatever is asked for."""

    allowNetwork: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowNetwork", False)

    @property
    def allow_network(self) -> bool:
        return self.allowNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """What `sandbox.json` says, merged with the defaults."""

    enabled: bool = True
    """Whether anything runs: without a sandbox nothing does."""
    filesystem: FilesystemPolicy = field(default_factory=FilesystemPolicy)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    source: str = "defaults"
    """The file, or variable, that says whether it is enabled."""

    @classmethod
    def of(cls, config: OurConfig) -> "SandboxConfig":
        """A view of the configuration that is in force."""
        return cls(
            enabled=config.enabled,
            filesystem=FilesystemPolicy(
                whitelist=config.whitelist, blacklist=config.blacklist, allowReadOutside=config.allow_read_outside
            ),
            source=config.switched_off_by or config.source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """What one command may reach: the configuration, with paths expanded and the working directory in it."""

    filesystem: FilesystemPolicy
    network: NetworkPolicy = field(default_factory=NetworkPolicy)


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What a command said, its exit code, and whether the sandbox stopped something: a view of `ringfence.Result`."""

    stdout: str
    stderr: str
    exitCode: int
    blocked: bool = False
    blockedReason: str | None = None
    full: Result | None = None
    """Everything that is known about the run; None if it was refused before one."""

    @classmethod
    def of(cls, result: Result) -> "SandboxResult":
        return cls(result.stdout, result.stderr, result.exit_code, result.blocked, result.blocked_reason, result)

    @property
    def exit_code(self) -> int:
        return self.exitCode

    @property
    def blocked_reason(self) -> str | None:
        return self.blockedReason


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What `BashTool` gives an agent."""

    stdout: str
    stderr: str
    exitCode: int

    @property
    def exit_code(self) -> int:
        return self.exitCode


@dataclass(frozen=True, slots=True)
class BashParams:
    """What an agent gives `BashTool`."""

    command: str
    cwd: StrPath | None = None
    """The current directory if not given."""

    @classmethod
    def of(cls, params: "BashParams | Mapping[str, Any]") -> "BashParams":
        if isinstance(params, BashParams):
            return params
        unknown = ", ".join(sorted(params.keys() - {"command", "cwd"}))
        if unknown or "command" not in params:
            raise InvalidConfig(
                f"parameters of BashTool: unknown: {unknown}"
                if unknown
                else "parameters of BashTool without a command",
                hint="give command, and cwd if it is not the current directory",
            )
        return cls(**params)


# --- configuration ----------------------------------------------------------------------------------------------------

DEFAULT_CONFIG: Final = SandboxConfig()


def config_path() -> str:
    """The document's CONFIG_PATH: the file that is read, or where it would be looked for first."""
    places = config_location(os.environ, home_directory(os.environ))
    return next((place for place in places if os.path.exists(place)), places[0])


def load_sandbox_config() -> SandboxConfig:
    """The configuration in force: SYNAPSE_SANDBOX_CONFIG, `~/.synapse/sandbox.json` or ours, merged with the defaults.

    Raises:
        InvalidConfig: a file that was named is not there, or holds an unknown key or a value that makes no sense.
    """
    return SandboxConfig.of(load_config(os.environ, home_directory(os.environ)))


def merge_config(default_config: SandboxConfig, user_config: Mapping[str, Any]) -> SandboxConfig:
    """What a file with this content would give; the blacklist of the defaults stays in, and the network off.

    Raises:
        InvalidConfig: an unknown key, or a value that makes no sense.
    """
    merged = SandboxConfig.of(parse_config(json.dumps(user_config), "user config"))
    defaults, mine = default_config.filesystem, merged.filesystem
    named = "allowReadOutside" in user_config.get("filesystem", {})
    return SandboxConfig(
        enabled=merged.enabled if "enabled" in user_config else default_config.enabled,
        filesystem=FilesystemPolicy(
            whitelist=(*defaults.whitelist, *mine.whitelist),
            blacklist=tuple(dict.fromkeys((*defaults.blacklist, *mine.blacklist))),
            allowReadOutside=mine.allowReadOutside if named else defaults.allowReadOutside,
        ),
        source=merged.source,
    )


# --- running ----------------------------------------------------------------------------------------------------------


class PlatformSandbox(Protocol):
    """What each platform has."""

    async def execute(self, command: str, cwd: StrPath, policy: SandboxPolicy) -> SandboxResult: ...


class LinuxSandbox:
    """A box for each command: bubblewrap where it is available, else our own namespaces with Landlock and seccomp."""

    async def execute(self, command: str, cwd: StrPath, policy: SandboxPolicy) -> SandboxResult:
        """Run a command.

        Args:
            policy: what it may reach, besides what the configuration in force says.

        Raises:
            RingfenceError: the request makes no sense, or the wall cannot be built; never runs bare.
        """
        here = os.path.realpath(cwd)
        home = home_directory(os.environ)
        rows = [expand(row, os.environ, home) for row in policy.filesystem.whitelist]
        write = [
            row for row in rows if os.path.exists(row) and not _is_temporary(row) and os.path.realpath(row) != here
        ]
        own = [row for row in policy.filesystem.blacklist if row not in BLACKLIST]
        async with Sandbox.for_one_call(workspace=cwd, write=write, deny=own) as sandbox:
            return SandboxResult.of(await sandbox.shell(command))


class MacOSSandbox:
    """`sandbox-exec` on macOS: its profile can be written, and nothing runs behind it yet."""

    async def execute(self, command: str, cwd: StrPath, policy: SandboxPolicy) -> SandboxResult:
        """
        Raises:
            InitializationFailed: always.
        """
        raise InitializationFailed(
            "running behind sandbox-exec is not built yet; only its profile is",
            hint="run Ringfence on Linux, for instance in a virtual machine",
        )


def get_platform_sandbox() -> PlatformSandbox:
    """
    Raises:
        InitializationFailed: there is none for this platform.
    """
    match sys.platform:
        case "linux":
            return LinuxSandbox()
        case "darwin":
            return MacOSSandbox()
        case other:
            raise InitializationFailed(
                f"Sandbox not supported on platform: {other}", hint="run Ringfence on Linux, in a virtual machine"
            )


class SandboxExecutor:
    """Each command in a box of its own, under the configuration that was in force when this was made."""

    def __init__(self) -> None:
        self.config = load_sandbox_config()
        self.platformSandbox = get_platform_sandbox()

    async def run(self, command: str, cwd: StrPath) -> SandboxResult:
        """Run a command in a directory. With `enabled: false` it is refused: nothing runs without a wall.

        Raises:
            RingfenceError: the request makes no sense, or the wall cannot be built.
        """
        if not self.config.enabled:
            reason = (
                f"refused: the sandbox is switched off, and nothing runs without a wall [rule: enabled: false in "
                f"{self.config.source}]; to allow it: switch it on, or start the program without Ringfence"
            )
            return SandboxResult("", f"Permission denied: {reason}\n", 1, True, reason)
        return await self.platformSandbox.execute(command, cwd, self.generate_policy(cwd))

    def generate_policy(self, cwd: StrPath) -> SandboxPolicy:
        """The policy of one command: the working directory and the box's own `/tmp` are added to the whitelist."""
        files = self.config.filesystem
        home = home_directory(os.environ)
        return SandboxPolicy(
            filesystem=FilesystemPolicy(
                whitelist=(
                    os.fspath(cwd),
                    *(expand(row, os.environ, home) for row in files.whitelist),
                    PRIVATE_TMP,
                ),
                blacklist=tuple(files.blacklist),
                allowReadOutside=files.allowReadOutside,
            )
        )


class BashTool:
    """An agent's shell: every command goes through `SandboxExecutor`."""

    def __init__(self) -> None:
        self.sandboxExecutor = SandboxExecutor()

    async def execute(self, params: BashParams | Mapping[str, Any]) -> CommandResult:
        """Run `{command, cwd}`; what was refused is said at the end of stderr."""
        given = BashParams.of(params)
        result = await self.sandboxExecutor.run(given.command, given.cwd if given.cwd is not None else os.getcwd())
        stderr = result.full.annotated_stderr if result.full is not None else result.stderr
        return CommandResult(result.stdout, stderr, result.exitCode)


def _is_temporary(path: str) -> bool:
    """A host's temporary directory as a whole stands for the box's own."""
    named = {PRIVATE_TMP, os.environ.get("TMPDIR", PRIVATE_TMP)}
    return os.path.realpath(path) in {os.path.realpath(each) for each in named}


loadSandboxConfig = load_sandbox_config
mergeConfig = merge_config
getPlatformSandbox = get_platform_sandbox
