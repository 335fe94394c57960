"""The coding agents that `ringfence wrap` knows: their hosts, keys and files. Data, each row with its reason.

A row opens no more than the agent needs to speak to its model. What else it wants (packages, GitHub, a page) the person
names with --allow.
"""

import os
from collections.abc import Mapping
from typing import Final

from ringfence.dataclass import dataclass, field

Host = str | Mapping[str, object]
"""As `network.allow` of a policy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where an agent keeps its settings, and how a copy is put in their place."""

    directory: str
    """The person's own, from their home."""
    moved_by: str
    """The variable that names another directory."""
    inside: str = ""
    """Where the settings lie below what that variable names; empty: there."""
    copied: tuple[str, ...] = ()
    """Files and directories that are taken along; never credentials, histories or what the agent wrote for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAgent:
    """One agent."""

    name: str
    title: str
    programs: tuple[str, ...]
    hosts: tuple[Host, ...]
    login_hosts: tuple[Host, ...] = ()
    """Needed where the person signs in with an account instead of a key; opened only by --login."""
    keys: tuple[str, ...]
    """Variables that hold keys; inside, each holds a placeholder."""
    settings: Settings | None = None
    environment: tuple[tuple[str, str], ...] = ()
    """Set inside: no updates and no telemetry, whose hosts are closed."""
    own_sandbox: str
    """What its own sandbox is, and why it is off inside ours."""
    sandbox_off: tuple[str, ...] = ()
    """Arguments that switch it off."""
    yields_to: tuple[str, ...] = ()
    """Options of the person that take the place of these arguments."""
    note: str = field(default="")


def _api(host: str, *paths: str) -> tuple[Host, ...]:
    return tuple({"host": host, "methods": [method], "paths": list(paths)} for method in ("GET", "POST"))


_NESTED: Final = "a wall inside ours cannot be built: there are no user namespaces inside"

AGENTS: Final = (
    KnownAgent(
        name="claude-code",
        title="Claude Code",
        programs=("claude",),
        hosts=_api("api.anthropic.com", "/v1/**", "/api/**"),  # /api: limits and settings of an account
        login_hosts=("claude.ai", "console.anthropic.com", "platform.claude.com"),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        settings=Settings(
            directory=".claude",
            moved_by="CLAUDE_CONFIG_DIR",
            copied=("settings.json", "CLAUDE.md", "keybindings.json", "agents", "commands", "output-styles", "skills"),
        ),
        environment=(("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")),
        own_sandbox=f"bubblewrap and a proxy; {_NESTED}",
        sandbox_off=("--settings", '{"sandbox":{"enabled":false}}'),
        yields_to=("--settings",),
    ),
    KnownAgent(
        name="codex",
        title="Codex",
        programs=("codex",),
        hosts=_api("api.openai.com", "/v1/**"),
        login_hosts=("auth.openai.com", "chatgpt.com"),
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        settings=Settings(
            directory=".codex",
            moved_by="CODEX_HOME",
            copied=("config.toml", "AGENTS.md", "prompts", "rules", "skills"),
        ),
        own_sandbox=f"bubblewrap, Landlock and seccomp; {_NESTED}",
        sandbox_off=("-c", 'sandbox_mode="danger-full-access"'),
        yields_to=("--sandbox", "-s", "--full-auto", "--dangerously-bypass-approvals-and-sandbox", "--yolo"),
    ),
    KnownAgent(
        name="gemini",
        title="Gemini CLI",
        programs=("gemini",),
        hosts=_api("generativelanguage.googleapis.com", "/**"),
        login_hosts=("accounts.google.com", "oauth2.googleapis.com", "cloudcode-pa.googleapis.com"),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        settings=Settings(
            directory=".gemini",
            moved_by="GEMINI_CLI_HOME",
            inside=".gemini",
            copied=("settings.json", "GEMINI.md", "commands", "extensions", "policies"),
        ),
        environment=(("GEMINI_SANDBOX", "false"), ("GEMINI_TELEMETRY_ENABLED", "false")),
        own_sandbox="a container that it starts itself; there is no container engine inside (GEMINI_SANDBOX=false)",
    ),
    KnownAgent(
        name="opencode",
        title="OpenCode",
        programs=("opencode",),
        hosts=(
            *_api("api.anthropic.com", "/v1/**"),
            *_api("api.openai.com", "/v1/**"),
            *_api("generativelanguage.googleapis.com", "/**"),
            *_api("openrouter.ai", "/api/**"),
            {"host": "models.dev", "methods": ["GET"]},  # its list of models
        ),
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        settings=Settings(
            directory=".config/opencode",
            moved_by="XDG_CONFIG_HOME",
            inside="opencode",
            copied=("opencode.json", "opencode.jsonc", "AGENTS.md", "agent", "command", "plugin"),
        ),
        environment=(("OPENCODE_DISABLE_AUTOUPDATE", "1"),),
        own_sandbox="it has none",
    ),
    KnownAgent(
        name="aider",
        title="aider",
        programs=("aider",),
        hosts=(
            *_api("api.anthropic.com", "/v1/**"),
            *_api("api.openai.com", "/v1/**"),
            *_api("openrouter.ai", "/api/**"),
        ),
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        environment=(("AIDER_CHECK_UPDATE", "false"), ("AIDER_ANALYTICS", "false")),
        own_sandbox="it has none",
    ),
)
BY_NAME: Final = {agent.name: agent for agent in AGENTS}
GITHUB_KEYS: Final = ("GH_TOKEN", "GITHUB_TOKEN")
"""Given as placeholders, to any agent, where a host of GitHub was allowed."""


def agent_of(program: str) -> KnownAgent | None:
    """Which agent a program is, by its name."""
    name = os.path.basename(program)
    return next((agent for agent in AGENTS if name in agent.programs), None)
