"""A client of MCP for tests: the official SDK's own, against `ringfence mcp` as a process, over real pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import ringfence
from tests.support.users import PROJECT, User, argv_as, me

LEGACY: Literal["legacy"] = "legacy"
MODERN = types.LATEST_PROTOCOL_VERSION
ERAS = (LEGACY, MODERN)
Answer = Callable[[str], "types.ElicitResult"]
_MODULE = "ringfence.cli.app"
_WITH_A_WORLD = """
import json, pathlib, sys
from types import SimpleNamespace
from tests.support.outside_world import replace_outside
directory, ports = sys.argv[1:3]
del sys.argv[1:3]
replace_outside(SimpleNamespace(setattr=setattr), pathlib.Path(directory), json.loads(ports))
from ringfence.cli.app import main
main()
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Stage:
    """Where a server runs: a home and a project of its own."""

    top: Path
    user: User = field(default_factory=me)
    ports: Mapping[int, int] = field(default_factory=dict)
    """If any, the world that the proxy sees (`outside_world`)."""

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def log(self) -> Path:
        return self.top / "stderr"

    def prepare(self) -> Stage:
        for directory in (self.top, self.project, self.home):
            directory.mkdir(exist_ok=True)
            directory.chmod(0o755)
            if not self.user.is_me:
                os.chown(directory, self.user.uid, self.user.gid)
        return self

    @property
    def environment(self) -> dict[str, str]:
        package = os.pathsep.join((os.path.dirname(os.path.dirname(ringfence.__file__)), str(PROJECT)))
        temporary = {} if not self.user.is_me else {"TMPDIR": tempfile.gettempdir()}
        return {"HOME": str(self.home), "PATH": _PATH, "LANG": "C.UTF-8", "PYTHONPATH": package, **temporary}

    def command(self, *options: str) -> list[str]:
        program = ["-c", _WITH_A_WORLD, str(self.top), json.dumps(self.ports)] if self.ports else ["-m", _MODULE]
        return argv_as(self.user, [sys.executable, "-W", "error", *program, "mcp", *options])

    @asynccontextmanager
    async def connected(
        self,
        era: str,
        *options: str,
        answer: Answer | None = None,
        roots: Sequence[Path] | None = None,
    ) -> AsyncIterator[Client]:
        """
        Args:
            answer: what the person does with a form; without it the client has no elicitation.
        """

        async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
            assert answer is not None
            return answer(params.message)

        async def list_roots(context: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=path.as_uri()) for path in roots or ()])  # type: ignore[arg-type]

        command = self.command(*options)
        server = StdioServerParameters(command=command[0], args=command[1:], env=self.environment, cwd=self.project)
        with open(self.log, "w") as log:
            async with Client(
                stdio_client(server, errlog=log),
                mode=era,
                elicitation_callback=elicit if answer is not None else None,
                list_roots_callback=list_roots if roots is not None else None,
                client_info=types.Implementation(name="test client", version="1"),
            ) as client:
                yield client

    def started(self, *options: str) -> subprocess.Popen[bytes]:
        """The server itself, for whoever writes messages by hand."""
        return subprocess.Popen(
            self.command(*options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.project,
            start_new_session=True,
        )


@contextmanager
def staged() -> Iterator[Stage]:
    """A stage below the private directory of temporary files, where an ordinary user comes, too."""
    top = Path(tempfile.mkdtemp(prefix="mcp-"))
    try:
        yield Stage(top).prepare()
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", top], check=True)  # overlays leave a directory that nobody may enter
        shutil.rmtree(top)


def texts(result: types.CallToolResult) -> list[str]:
    return [each.text for each in result.content if isinstance(each, types.TextContent)]


def said(result: types.CallToolResult) -> str:
    return "\n".join(texts(result))


def values(result: types.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def accept(decision: str = "yes") -> Answer:
    return lambda _: types.ElicitResult(action="accept", content={"decision": decision})
