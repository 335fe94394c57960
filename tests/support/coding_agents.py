"""The real command lines of coding agents, each told to speak to a scripted model instead of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ringfence
from tests.support.scripted_model import Seen, Use

CLIS: Final = "RINGFENCE_AGENT_CLIS"
"""The directory that holds `claude`, `codex` and `gemini`: `scripts/agents.sh` installs them from npm."""
_WITH_A_WORLD: Final = """
import json, pathlib, sys
from types import SimpleNamespace
from tests.support.outside_world import replace_outside
directory, ports = sys.argv[1:3]
del sys.argv[1:3]
replace_outside(SimpleNamespace(setattr=setattr), pathlib.Path(directory), json.loads(ports))
from ringfence.cli.app import main
main()
"""
PROJECT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Agent:
    """One of them, as a test starts it."""

    name: str
    program: str
    host: str
    key: str
    arguments: tuple[str, ...]
    """So that it takes one task, asks nobody and ends."""
    tool: str
    argument: str
    """Of its shell, and where that takes the command."""

    def use(self, command: str) -> Use:
        return Use(self.tool, {self.argument: command})

    def settings(self, home: Path, url: str) -> dict[str, str]:
        """Write what makes it speak to `url`, or, if that is empty, to its maker; the variables that it needs."""
        match self.name:
            case "claude-code":
                extra = {"ANTHROPIC_BASE_URL": url} if url else {}
                return {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", **extra}
            case "codex":
                lines = ['model = "gpt-5"', 'model_provider = "scripted"', "[model_providers.scripted]"]
                base = f"{url}/v1" if url else f"https://{self.host}/v1"
                lines += [
                    'name = "scripted"',
                    f'base_url = "{base}"',
                    f'env_key = "{self.key}"',
                    'wire_api = "responses"',
                ]
                _write(home / ".codex/config.toml", "\n".join(lines) + "\n")
                return {}
            case _:
                known = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
                quiet = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}
                path = home / ".gemini/settings.json"
                before = json.loads(path.read_text()) if path.exists() else {}
                _write(path, json.dumps({**before, **known, **quiet}))
                return {"GOOGLE_GEMINI_BASE_URL": url} if url else {}


_CLAUDE: Final = ("-p", "do it", "--allowedTools", "Bash", "mcp__ringfence__bash")
_CODEX: Final = ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "do it")
_GEMINI: Final = ("-p", "do it", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash")
_GOOGLE: Final = "generativelanguage.googleapis.com"
AGENTS: Final = {
    each.name: each
    for each in (
        Agent("claude-code", "claude", "api.anthropic.com", "ANTHROPIC_API_KEY", _CLAUDE, "Bash", "command"),
        Agent("codex", "codex", "api.openai.com", "OPENAI_API_KEY", _CODEX, "exec_command", "cmd"),
        Agent("gemini", "gemini", _GOOGLE, "GEMINI_API_KEY", _GEMINI, "run_shell_command", "command"),
    )
}


@dataclass(frozen=True)
class Stage:
    """A home and a project."""

    top: Path

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def project(self) -> Path:
        return self.top / "project"

    def environment(self, **more: str) -> dict[str, str]:
        package = os.pathsep.join((os.path.dirname(os.path.dirname(ringfence.__file__)), str(PROJECT)))
        own = os.pathsep.join((os.environ[CLIS], os.path.dirname(sys.executable), os.environ["PATH"]))
        return {
            "HOME": str(self.home),
            "PATH": own,
            "PYTHONPATH": package,
            "TERM": "xterm",
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "RINGFENCE_KEEPER": "off",
            **more,
        }

    def run(self, words: list[str], env: Mapping[str, str], seconds: float = 100) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.project,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def ringfence(self, ports: Mapping[int, int], *words: str) -> list[str]:
        """The command line, with a world behind its proxy in which these ports lead to ours."""
        return [sys.executable, "-c", _WITH_A_WORLD, str(self.top), json.dumps(dict(ports)), *words]

    def journal(self) -> list[dict[str, Any]]:
        path = self.home / ".ringfence/state/journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def stage(top: Path) -> Stage:
    made = Stage(top)
    for directory in (made.home, made.project):
        directory.mkdir(parents=True, exist_ok=True)
    return made


def header(seen: Seen, name: str) -> str:
    return next((value for key, value in seen.headers.items() if key.lower() == name), "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
