"""`FileListTool` and `SearchTool`: which files there are, and which lines in them.

Our own search, in the same words on every machine: each file is read under the rules of the tool, which a program in
the box would not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ringfence.errors import InvalidArgument, PathAccessDenied
from ringfence.policy.globs import compiled
from ringfence.tools.files import Files, FileTool
from ringfence.values.outcome import Result

_MATCHES_MAX: Final = 1000
"""Lines that a search gives, and names that a list does."""
_LINE_MAX: Final = 1000
"""Characters of a line that is shown: a minified file would fill a model's context with one."""
_SEARCHED_MAX: Final = 4 * 1024 * 1024
"""Larger files are not searched: they are data, and an agent would not read them either."""


class FileListTool(FileTool):
    """`file_list`: the files at or below a path, a name on each line."""

    name = "file_list"

    async def execute(self, path: str = ".", *, depth: int | None = None) -> Result:
        """
        Args:
            depth: how many levels below the path; all if not given. Directories that are not entered end with `/`.
        """
        return await self._run(path, lambda files: _listed(files, path, depth))


class SearchTool(FileTool):
    """`search`: the lines of files that a regular expression finds, as `path:line: text`; or the names of files."""

    name = "search"

    async def list(self, path: str = ".") -> Result:
        """The files at or below a path, a name on each line."""
        return await self._run(path, lambda files: _listed(files, path, None))

    async def execute(self, pattern: str, path: str = ".", *, names: str | None = None) -> Result:
        """
        Args:
            names: only in files whose name, or path, fits this pattern, such as `*.py` or `src/**/*.c`.

        Raises:
            InvalidArgument: it is not a regular expression.
        """
        try:
            wanted = re.compile(pattern)
        except re.error as fault:
            raise InvalidArgument(f"{pattern!r} is not a regular expression: {fault}", hint="escape it") from None

        async def work(files: Files) -> str:
            lines: list[str] = []
            for name in _named(await files.names(path), names):
                try:
                    data = await files.read_for_search(name)
                except PathAccessDenied:
                    continue  # hidden names are not searched, and that they are there is not said
                if len(data) > _SEARCHED_MAX or b"\0" in data[:8192]:
                    continue
                lines += _matches(name, data, wanted)[: _MATCHES_MAX - len(lines)]
                if len(lines) >= _MATCHES_MAX:
                    lines.append(f"... more than {_MATCHES_MAX} lines; search below a directory")
                    break
            return "".join(f"{line}\n" for line in lines)

        return await self._run(path, work)


def _matches(name: str, data: bytes, wanted: re.Pattern[str]) -> list[str]:
    lines = data.decode("utf-8", "replace").splitlines()
    return [f"{name}:{i}: {_short(line)}" for i, line in enumerate(lines, 1) if wanted.search(line)]


def _short(line: str) -> str:
    return line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]} [... {len(line) - _LINE_MAX} more characters]"


def _named(found: Iterable[str], names: str | None) -> Iterable[str]:
    if names is None:
        return found
    fits = compiled((names,))
    return (name for name in found if fits.matches(f"/{name.lstrip('/')}"))


async def _listed(files: Files, path: str, depth: int | None) -> str:
    found = await files.names(path)
    if depth is not None:
        found = _shallow(found, path, depth)
    more = [f"... and {len(found) - _MATCHES_MAX} more; list a directory below"]
    return "".join(f"{name}\n" for name in found[:_MATCHES_MAX] + more * (len(found) > _MATCHES_MAX))


def _shallow(found: Iterable[str], path: str, depth: int) -> list[str]:
    """Names down to a depth; a directory that goes on deeper once, with a slash."""
    base = len([part for part in path.split("/") if part not in ("", ".")]) if path not in (".", "/workspace") else 0
    kept: dict[str, None] = {}
    for name in found:
        parts = name.split("/")
        is_deeper = len(parts) > base + depth
        kept["/".join(parts[: base + depth]) + "/" * is_deeper] = None
    return list(kept)
