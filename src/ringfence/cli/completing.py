"""What the shell proposes after TAB: shadows, snapshots, roles, tools, languages. Quiet: a fault proposes nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.errors import RingfenceError

if TYPE_CHECKING:
    from ringfence.manager.policing import PolicyEngine


def complete_shadows(incomplete: str) -> list[tuple[str, str]]:
    """Names and ids, each with the project that it is a shadow of."""
    from ringfence.manager.workspaces import list_shadows

    found: list[tuple[str, str]] = []
    try:
        for shadow in reversed(list_shadows(os.environ)):
            names = (shadow.name, shadow.id) if shadow.name else (shadow.id,)
            found += [(name, f"of {shadow.lower}") for name in names]
    except RingfenceError:
        return []
    return [(name, what) for name, what in found if name.startswith(incomplete)]


def complete_snapshots(incomplete: str) -> list[str]:
    from ringfence.manager.workspaces import list_snapshots

    try:
        return [saved.name for saved in list_snapshots(os.environ) if saved.name.startswith(incomplete)]
    except RingfenceError:
        return []


def complete_roles(ctx: Any, incomplete: str) -> list[str]:
    """Those of the policy that the line names, and of the organisation's."""
    return [name for name in _of_policies(ctx, "roles") if name.startswith(incomplete)]


def complete_tools(ctx: Any, incomplete: str) -> list[str]:
    return [name for name in _of_policies(ctx, "tools") if name.startswith(incomplete)]


def complete_languages(incomplete: str) -> list[tuple[str, str]]:
    """Each language, and its other names once somebody has begun to type one."""
    from ringfence.languages.registry import LANGUAGES

    found = [(language.name, language.name) for language in LANGUAGES]
    if incomplete:
        found += [(alias, f"the same as {language.name}") for language in LANGUAGES for alias in language.aliases]
    return [(name, what) for name, what in found if name.startswith(incomplete)]


def complete_traces(incomplete: str) -> list[str]:
    return [level for level in ("off", "changes", "reads", "full") if level.startswith(incomplete)]


def complete_presets(incomplete: str) -> list[tuple[str, str]]:
    from ringfence.manager.network_pages import preset_names

    return [(name, what) for name, what in preset_names() if name.startswith(incomplete)]


def _of_policies(ctx: Any, names: str) -> Iterator[str]:
    engine = _engine(ctx.params, ctx.args)
    yield from getattr(engine, names) if engine is not None else ()


def _engine(given: dict[str, Any], words: list[str]) -> "PolicyEngine | None":
    """
    Args:
        words: those that the parser had not placed when it came to the option that is being completed.
    """
    from ringfence.manager.policing import PolicyEngine

    named = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    project = given.get("policy") or given.get("file") or named
    try:
        return PolicyEngine.from_files(project=Path(project).expanduser() if project else None)
    except RingfenceError:
        return None
