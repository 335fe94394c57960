"""A workspace and boxes in containers over it, for the tests of the Docker engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.settings import DockerSettings
from ringfence.policy.defaults import PROTECTED
from ringfence.values.grant import Grant
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result
from ringfence.values.request import Request

SECONDS = 60.0


class Bench:
    def __init__(self, workspace: Path, settings: DockerSettings) -> None:
        self.workspace = workspace
        self.settings = settings

    def use(self, work: Callable[[HelperBox], Awaitable[Any]], **grant: Any) -> Any:
        """Open a box, do something with it, close it."""

        async def main() -> Any:
            async with asyncio.timeout(SECONDS):
                box = await DockerEngine(self.settings).open(Grant(**{"workspace": self.workspace, **grant}))
                try:
                    return await work(box)
                finally:
                    await box.close()

        return asyncio.run(main())

    def run(self, command: str, *, limits: Limits | None = None, timeout: float | None = None, **grant: Any) -> Result:
        """One command in a box of its own."""
        limits = limits or Limits()
        result = self.use(lambda box: box.run(Request(command=command, timeout=timeout)), limits=limits, **grant)
        assert isinstance(result, Result)
        return result

    def guarded(self, command: str, **parts: Any) -> Result:
        """The same with protected and blacklisted names, as people get it."""
        return self.run(command, protected=PROTECTED, denied=("**/.env",), **parts)
