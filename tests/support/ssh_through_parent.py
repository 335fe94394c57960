"""A git server by SSH that only a company's proxy leads to, for boxes of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.git_server import run_git
from tests.support.parent_proxy import CREDENTIALS
from tests.support.ssh_git_server import KNOWN, serve_ssh, write_keys

__all__ = ["KNOWN"]


@dataclass(frozen=True)
class Served:
    port: int
    rule: dict[str, Any]
    """That lets it be read."""
    secret: str


@asynccontextmanager
async def served_by_ssh(home: Path) -> AsyncIterator[Served]:
    """Two repositories; the person of that home knows the server and has a key for it."""
    root = home.parent
    write_keys(root)
    for name in ("first", "second"):
        repository = root / "repositories/ssh/org" / f"{name}.git"
        repository.mkdir(parents=True)
        run_git("init", "-q", "--bare", "--initial-branch=main", str(repository))
        work = root / f"work-{name}"
        run_git("clone", "-q", str(repository), str(work))
        (work / "README").write_text("hello from outside\n")
        run_git("-C", str(work), "add", "README")
        run_git("-C", str(work), "commit", "-q", "-m", "one")
        run_git("-C", str(work), "push", "-q", "origin", "HEAD:main")
    (acceptor,) = await serve_ssh(root, {KNOWN: "127.0.0.1"}, 0)
    try:
        rule = {"host": KNOWN, "ssh": "read", "paths": ["/org/first"]}
        yield Served(acceptor.get_port(), rule, f"GIT_KEY=file:{root}/ssh_key@{KNOWN};places=ssh")
    finally:
        acceptor.close()
        await acceptor.wait_closed()


def set_parent(patch: pytest.MonkeyPatch, port: int) -> None:
    for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy", "NO_PROXY", "HTTP_PROXY"):
        patch.delenv(name, raising=False)
    patch.setenv("HTTPS_PROXY", f"http://{CREDENTIALS}@127.0.0.1:{port}")
