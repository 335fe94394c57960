"""The clients that can be told of the server: which file says so, in which form. Data with reasons; imports no SDK."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringfence.agents.settings_files import Files, Scope


@dataclass(frozen=True, slots=True)
class Command:
    """How a client starts the server."""

    program: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return [self.program, *self.arguments]


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    Args:
        files: the file for each scope, from the project's and the person's directory.
        key: the object in the file that names servers.
        entry: what is written there.
        note: what else a person should know.
    """

    name: str
    title: str
    files: Files
    key: str
    entry: Callable[[Command], dict[str, Any]]
    note: str = ""
    is_toml: bool = False

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(self.files)


def _plain(command: Command) -> dict[str, Any]:
    return {"command": command.program, "args": list(command.arguments)}


def _typed(command: Command) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _with_times(command: Command) -> dict[str, Any]:
    """Codex gives a tool 300 s unless told otherwise; a person may take longer to answer."""
    return {**_plain(command), "startup_timeout_sec": 30, "tool_timeout_sec": 900}


def _local(command: Command) -> dict[str, Any]:
    return {"type": "local", "command": command.words, "enabled": True}


def _config_home(home: Path) -> Path:
    return home / "Library" / "Application Support" if sys.platform == "darwin" else home / ".config"


def _codex_home(home: Path) -> Path:
    return Path(os.environ.get("CODEX_HOME") or home / ".codex")


_ROWS: Final = (
    Client(
        "claude-code",
        "Claude Code",
        # Not ~/.claude.json: the client rewrites that file while it runs.
        {Scope.PROJECT: lambda project, home: project / ".mcp.json"},
        "mcpServers",
        _typed,
        "Claude Code asks once whether this project's server may be used; for all projects: "
        "`claude mcp add --scope user ringfence -- COMMAND`.",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        {Scope.USER: lambda project, home: _config_home(home) / "Claude" / "claude_desktop_config.json"},
        "mcpServers",
        _plain,
        "Restart Claude Desktop. It cannot show questions: what a policy would ask is refused.",
    ),
    Client(
        "cursor",
        "Cursor",
        {
            Scope.PROJECT: lambda project, home: project / ".cursor" / "mcp.json",
            Scope.USER: lambda project, home: home / ".cursor" / "mcp.json",
        },
        "mcpServers",
        _plain,
    ),
    Client(
        "vscode",
        "VS Code",
        {
            Scope.PROJECT: lambda project, home: project / ".vscode" / "mcp.json",
            Scope.USER: lambda project, home: _config_home(home) / "Code" / "User" / "mcp.json",
        },
        "servers",
        _typed,
        "VS Code asks nobody before a tool that is marked as only reading.",
    ),
    Client(
        "codex",
        "Codex",
        {Scope.USER: lambda project, home: _codex_home(home) / "config.toml"},
        "mcp_servers",
        _with_times,
        is_toml=True,
    ),
    Client(
        "gemini",
        "Gemini CLI",
        {
            Scope.PROJECT: lambda project, home: project / ".gemini" / "settings.json",
            Scope.USER: lambda project, home: home / ".gemini" / "settings.json",
        },
        "mcpServers",
        _plain,
        "Gemini CLI cannot show questions: what a policy would ask is refused.",
    ),
    Client(
        "windsurf",
        "Windsurf",
        {Scope.USER: lambda project, home: home / ".codeium" / "windsurf" / "mcp_config.json"},
        "mcpServers",
        _plain,
    ),
    Client(
        "opencode",
        "OpenCode",
        {
            Scope.PROJECT: lambda project, home: project / "opencode.json",
            Scope.USER: lambda project, home: home / ".config" / "opencode" / "opencode.json",
        },
        "mcp",
        _local,
        "OpenCode cannot show questions: what a policy would ask is refused.",
    ),
    Client(
        "zed",
        "Zed",
        {
            Scope.PROJECT: lambda project, home: project / ".zed" / "settings.json",
            Scope.USER: lambda project, home: home / ".config" / "zed" / "settings.json",
        },
        "context_servers",
        _plain,
        "Zed cannot show questions: what a policy would ask is refused.",
    ),
)
CLIENTS: Final = {client.name: client for client in _ROWS}
