"""The blocking face: the same names and arguments as in `ringfence`, without asyncio.

    from ringfence.sync import Sandbox

    with Sandbox(workspace="project") as box:
        print(box.shell("ls").stdout)

One thread with an event loop of its own does the work, so that all of this may be used inside a running loop (a
notebook) and from several threads. Ctrl-C ends what runs inside. What is open when the interpreter ends is closed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.manager.blocking import run
    from ringfence.manager.workspaces import Workspaces
    from ringfence.sync.browsing import BrowserRouter
    from ringfence.sync.connecting import Server, connect
    from ringfence.sync.executing import DockerExecutor, SandboxBuilder, SandboxExecutor, SubprocessExecutor
    from ringfence.sync.managing import SandboxManager, SandboxPool
    from ringfence.sync.sandbox import BoxFiles, Process, Sandbox
    from ringfence.sync.tools import (
        BashTool,
        FileEditTool,
        FileListTool,
        FileReadTool,
        FileWriteTool,
        RunCodeTool,
        SearchTool,
        WorldInterface,
    )
    from ringfence.workspace.snapshots.store import SnapshotStore

__all__ = [
    "BashTool",
    "BoxFiles",
    "BrowserRouter",
    "DockerExecutor",
    "FileEditTool",
    "FileListTool",
    "FileReadTool",
    "FileWriteTool",
    "Process",
    "RunCodeTool",
    "Sandbox",
    "SandboxBuilder",
    "SandboxExecutor",
    "SandboxManager",
    "SandboxPool",
    "SearchTool",
    "Server",
    "SnapshotStore",
    "SubprocessExecutor",
    "Workspaces",
    "WorldInterface",
    "connect",
    "run",
]

# Imported when first used, as in `ringfence`.
_HOME = {
    "BashTool": "ringfence.sync.tools",
    "BoxFiles": "ringfence.sync.sandbox",
    "BrowserRouter": "ringfence.sync.browsing",
    "DockerExecutor": "ringfence.sync.executing",
    "FileEditTool": "ringfence.sync.tools",
    "FileListTool": "ringfence.sync.tools",
    "FileReadTool": "ringfence.sync.tools",
    "FileWriteTool": "ringfence.sync.tools",
    "Process": "ringfence.sync.sandbox",
    "RunCodeTool": "ringfence.sync.tools",
    "Sandbox": "ringfence.sync.sandbox",
    "SandboxBuilder": "ringfence.sync.executing",
    "SandboxExecutor": "ringfence.sync.executing",
    "SandboxManager": "ringfence.sync.managing",
    "SandboxPool": "ringfence.sync.managing",
    "SearchTool": "ringfence.sync.tools",
    "Server": "ringfence.sync.connecting",
    "WorldInterface": "ringfence.sync.tools",
    "SnapshotStore": "ringfence.workspace.snapshots.store",
    "SubprocessExecutor": "ringfence.sync.executing",
    "Workspaces": "ringfence.manager.workspaces",
    "connect": "ringfence.sync.connecting",
    "run": "ringfence.manager.blocking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ringfence.sync' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
