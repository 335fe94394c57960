"""Variables that tools insist on, and where what they hold may go: data.

A preset saves writing hosts and places; it opens no host. Hosts are those that the vendor's own clients send the token
to.
"""

from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.network import SecretPlace

_USUAL: Final = (SecretPlace.HEADER, SecretPlace.BASIC)


@dataclass(frozen=True, slots=True)
class SecretPreset:
    variable: str
    hosts: tuple[str, ...]
    shape: str
    """How its values begin."""
    places: tuple[SecretPlace, ...] = _USUAL
    signer: str = ""
    why: str = ""


_GITHUB: Final = (
    "github.com",
    "api.github.com",
    "uploads.github.com",
    "codeload.github.com",
    "raw.githubusercontent.com",
)

PRESETS: Final = (
    SecretPreset("GH_TOKEN", _GITHUB, "ghp_", why="gh; git by Basic"),
    SecretPreset("GITHUB_TOKEN", _GITHUB, "ghp_", why="gh, actions, most tools that speak to GitHub"),
    SecretPreset("GITLAB_TOKEN", ("gitlab.com",), "glpat-", why="glab; git by Basic"),
    SecretPreset("ANTHROPIC_API_KEY", ("api.anthropic.com",), "sk-ant-", (SecretPlace.HEADER,), why="x-api-key"),
    SecretPreset("ANTHROPIC_AUTH_TOKEN", ("api.anthropic.com",), "sk-ant-", (SecretPlace.HEADER,), why="Bearer"),
    SecretPreset(
        "CLAUDE_CODE_OAUTH_TOKEN",
        ("api.anthropic.com",),
        "sk-ant-oat01-",
        (SecretPlace.HEADER,),
        why="Bearer; of `claude setup-token`, for those who pay by subscription",
    ),
    SecretPreset("OPENAI_API_KEY", ("api.openai.com",), "sk-", (SecretPlace.HEADER,), why="Bearer, also for realtime"),
    SecretPreset("CODEX_API_KEY", ("api.openai.com",), "sk-", (SecretPlace.HEADER,), why="Bearer, of `codex exec`"),
    SecretPreset("OPENROUTER_API_KEY", ("openrouter.ai",), "sk-or-v1-", (SecretPlace.HEADER,), why="Bearer"),
    SecretPreset(
        "GEMINI_API_KEY",
        ("generativelanguage.googleapis.com",),
        "AIza",
        (SecretPlace.HEADER, SecretPlace.QUERY),
        why="x-goog-api-key, or ?key= in older clients",
    ),
    SecretPreset(
        "GOOGLE_API_KEY",
        ("generativelanguage.googleapis.com",),
        "AIza",
        (SecretPlace.HEADER, SecretPlace.QUERY),
        why="the same, by the name that Google's own clients look for first",
    ),
    SecretPreset(
        "HF_TOKEN",
        ("huggingface.co", "router.huggingface.co", "api-inference.huggingface.co"),
        "hf_",
        why="files come from other hosts by signed addresses, without the token",
    ),
    SecretPreset("NPM_TOKEN", ("registry.npmjs.org",), "npm_", why=".npmrc names the variable"),
    SecretPreset(
        "TWINE_PASSWORD", ("upload.pypi.org", "test.pypi.org"), "pypi-", (SecretPlace.BASIC,), why="__token__"
    ),
    SecretPreset(
        "AWS_ACCESS_KEY_ID",
        ("*.amazonaws.com",),
        "AKIA",
        (SecretPlace.HEADER,),
        "aws-sigv4",
        why="each request is signed anew outside; AWS_SECRET_ACCESS_KEY inside is a placeholder too",
    ),
)

AWS_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""What `env:AWS_*` reads; the last may be missing."""


def preset_for(variable: str) -> SecretPreset | None:
    return next((each for each in PRESETS if each.variable == variable), None)
