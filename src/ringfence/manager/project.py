"""Finds out what a project is made of, from the names of its files and a look into three of them.

Nothing that a file says is taken over as it is: a project may have been written by an agent. Its files only choose
among the rows below.
"""

import json
import os
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from ringfence.dataclass import dataclass

_LARGEST: Final = 1024 * 1024
"""Bytes of a file that is looked into; a manifest has a few thousand."""


@dataclass(frozen=True, slots=True)
class _Sign:
    file: str
    languages: tuple[str, ...]
    manager: str
    """The package manager that the file belongs to; empty if it says nothing about one."""
    publishes: tuple[str, ...] = ()
    """Commands of that manager that make something public."""


_PYTHON: Final = ("python",)
_NODE: Final = ("javascript",)
_SIGNS: Final = (
    _Sign("uv.lock", _PYTHON, "uv", ("uv publish",)),
    _Sign("poetry.lock", _PYTHON, "poetry", ("poetry publish",)),
    _Sign("pdm.lock", _PYTHON, "pdm", ("pdm publish",)),
    _Sign("Pipfile", _PYTHON, "pipenv"),
    _Sign("environment.yml", _PYTHON, "conda"),
    _Sign("requirements.txt", _PYTHON, "pip", ("twine upload",)),
    _Sign("pyproject.toml", _PYTHON, "", ("twine upload",)),
    _Sign("setup.py", _PYTHON, "", ("twine upload",)),
    _Sign("pnpm-lock.yaml", _NODE, "pnpm", ("pnpm publish",)),
    _Sign("yarn.lock", _NODE, "yarn", ("yarn publish", "yarn npm publish")),
    _Sign("bun.lockb", _NODE, "bun", ("bun publish",)),
    _Sign("bun.lock", _NODE, "bun", ("bun publish",)),
    _Sign("package-lock.json", _NODE, "npm", ("npm publish",)),
    _Sign("package.json", _NODE, "", ("npm publish",)),
    _Sign("tsconfig.json", ("typescript", *_NODE), ""),
    _Sign("Cargo.toml", ("rust",), "cargo", ("cargo publish",)),
    _Sign("go.mod", ("go",), "go"),
    _Sign("Gemfile", ("ruby",), "bundle", ("gem push",)),
    _Sign("composer.json", ("php",), "composer"),
    _Sign("pom.xml", ("java",), "mvn", ("mvn deploy",)),
    _Sign("build.gradle", ("java",), "gradle", ("gradle publish",)),
    _Sign("build.gradle.kts", ("kotlin",), "gradle", ("gradle publish",)),
    _Sign("CMakeLists.txt", ("c++",), ""),
    _Sign("DESCRIPTION", ("r",), ""),
    _Sign("Project.toml", ("julia",), ""),
)
"""What the name of a file at the top says; of one language's package managers the first that is there counts."""

_ENDINGS: Final = {
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".sh": "bash",
    ".rb": "ruby",
    ".pl": "perl",
}
"""For projects without any of these files: what lies at the top."""
_DEFAULT_MANAGERS: Final = {"python": "pip", "javascript": "npm"}
_SECRETS: Final = (
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "id_rsa",
    "id_ed25519",
    "*.tfstate",
    ".npmrc",
    ".pypirc",
)
"""Names of files that often hold secrets and that the built-in blacklist does not hide."""
_DEEPEST: Final = 3
_MOST_ENTRIES: Final = 20_000
_SKIPPED: Final = frozenset((".git", "node_modules", ".venv", "venv", "target", "dist", "build", "__pycache__", ".tox"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What was found; everything in the order of the tables above."""

    directory: Path
    languages: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()
    test_command: str = ""
    """How its tests are run; empty if that is not known."""
    publishing: tuple[str, ...] = ()
    """Commands that would make something of it public."""
    secrets: tuple[str, ...] = ()
    """Rows of names that often hold secrets, as far as such files are there."""


def look_at(directory: Path) -> Project:
    """What a project is made of; of a directory that cannot be read, nothing."""
    here = _names(directory)
    signs = [sign for sign in _SIGNS if sign.file in here]
    languages = dict.fromkeys(language for sign in signs for language in sign.languages)
    if not languages:
        endings = sorted(os.path.splitext(name)[1] for name in here)
        languages = dict.fromkeys(_ENDINGS[ending] for ending in endings if ending in _ENDINGS)
    managers: dict[tuple[str, ...], str] = {}
    for sign in signs:
        if sign.manager:
            managers.setdefault(sign.languages, sign.manager)
    for language in languages:
        if language in _DEFAULT_MANAGERS and (language,) not in managers:
            managers[(language,)] = _DEFAULT_MANAGERS[language]
    return Project(
        directory=directory,
        languages=tuple(languages),
        managers=tuple(dict.fromkeys(managers.values())),
        test_command=next(_test_commands(directory, here, tuple(managers.values())), ""),
        publishing=tuple(dict.fromkeys(command for sign in signs for command in sign.publishes)),
        secrets=_secrets(directory),
    )


def _test_commands(directory: Path, here: frozenset[str], managers: tuple[str, ...]) -> Iterator[str]:
    """The likely ones, the most telling first."""
    if here & {"Makefile", "makefile", "GNUmakefile"} and _has_target(directory, here):
        yield "make test"
    if _tests_by_pytest(directory, here):
        # That of the project's own environment, where there is one: inside, no package manager reaches the network.
        yield ".venv/bin/python -m pytest -q" if ".venv" in here else "pytest -q"
    scripts = _section(_manifest(directory / "package.json"), "scripts")
    if "test" in scripts:
        yield f"{next((name for name in managers if name in ('npm', 'yarn', 'pnpm', 'bun')), 'npm')} test"
    if "Cargo.toml" in here:
        yield "cargo test"
    if "go.mod" in here:
        yield "go test ./..."
    if "pom.xml" in here:
        yield "mvn test"
    if here & {"build.gradle", "build.gradle.kts"}:
        yield "gradle test"
    if here & {"setup.py", "pyproject.toml"}:
        yield "python -m unittest"


def _tests_by_pytest(directory: Path, here: frozenset[str]) -> bool:
    if here & {"pytest.ini", "conftest.py", "tox.ini"}:
        return True
    if _section(_manifest(directory / "pyproject.toml"), "tool", "pytest"):
        return True
    below = _names(directory / "tests") | _names(directory / "test")
    return any(name.startswith("test_") and name.endswith(".py") for name in here | below)


def _has_target(directory: Path, here: frozenset[str]) -> bool:
    names = [name for name in ("GNUmakefile", "makefile", "Makefile") if name in here]
    return any(line.startswith(("test:", "test ")) for name in names for line in _text(directory / name).splitlines())


def _manifest(path: Path) -> dict[str, Any]:
    """A file of settings; empty if it is not there or not what it seems."""
    text = _text(path)
    try:
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _section(found: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = found.get(name)
        if not isinstance(inner, dict):
            return {}
        found = inner
    return found


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would keep us for ever
        with open(descriptor, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def _names(directory: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))
    except OSError:
        return frozenset()


def _secrets(directory: Path) -> tuple[str, ...]:
    """Which rows have files here, not far below the top."""
    found: set[str] = set()
    seen = 0
    for place, inner, files in os.walk(directory):
        depth = Path(place).relative_to(directory).parts
        inner[:] = [name for name in inner if name not in _SKIPPED] if len(depth) < _DEEPEST else []
        seen += len(files)
        if seen > _MOST_ENTRIES:
            break
        found.update(row for row in _SECRETS for name in files if fnmatch(name, row))
    return tuple(row for row in _SECRETS if row in found)
