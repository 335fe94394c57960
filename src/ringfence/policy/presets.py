"""The four modes, written as policies are (requirement C8).

Each is the block of settings that `mode: <name>` stands for. Whatever the mode, a command runs behind the wall, the
built-in blacklist holds and there is no network inside a box.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ringfence.policy.load import load_policy

if TYPE_CHECKING:
    from ringfence.policy.model import Block

PRESETS: Final = MappingProxyType(
    {
        # For a person who watches: reads anywhere but the blacklist, warns instead of refusing where it can.
        "permissive": """
            policies:
              default:
                security_mode: permissive
                filesystem_access: read_outside
                network_access: true
                validation: {strictness: permissive}
            """,
        # For everyday work in a project.
        "normal": """
            policies:
              default:
                filesystem_access: workspace_only
                validation: {strictness: normal}
            """,
        # For an agent that works alone: nothing outside, a short leash on what it may use.
        "restricted": """
            policies:
              default:
                security_mode: strict
                filesystem_access: workspace_only
                network_access: false
                validation: {strictness: normal}
                temporary_files: own_prefix
                limits: {wall: 60s, memory: 1GB, processes: 128}
            """,
        # For code of unknown origin: no wide grant anywhere, the least that an interpreter needs.
        "strict": """
            policies:
              default:
                security_mode: strict
                filesystem_access: workspace_only
                network_access: false
                validation: {strictness: strict}
                temporary_files: own_prefix
                limits: {wall: 30s, memory: 512MB, processes: 64, output: 1MB}
            """,
    }
)


@lru_cache(maxsize=len(PRESETS))
def preset(mode: str) -> Block:
    """The settings of a mode."""
    return load_policy(PRESETS[mode], f"mode {mode}").default
