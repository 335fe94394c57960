"""`FileEditTool`: changes a part of a file, by an exact text or by a patch."""

from __future__ import annotations

from ringfence.errors import InvalidArgument
from ringfence.tools.files import Files, FileTool
from ringfence.tools.patching import apply_patch
from ringfence.values.outcome import Result


class FileEditTool(FileTool):
    """`file_edit`: puts one text in the place of another, which has to be there exactly once; or applies a patch."""

    name = "file_edit"
    changes = True

    async def execute(self, path: str, old: str, new: str, *, everywhere: bool = False) -> Result:
        """
        Args:
            everywhere: replace every place where the old text is.
        """

        async def work(files: Files) -> str:
            text = await _text(files, path)
            count = text.count(old) if old else 0
            if count == 0 or (count > 1 and not everywhere):
                raise InvalidArgument(f"{path}: {_why_not(text, old, count)}", hint=_hint(text, old, count))
            await _store(files, path, text.replace(old, new))
            return f"{count} place{'s' if count > 1 else ''} changed in {path}\n"

        return await self._run(path, work)

    async def apply(self, path: str, patch: str) -> Result:
        """Apply a unified diff of this one file; all of it, or nothing."""

        async def work(files: Files) -> str:
            text = await _text(files, path)
            changed, hunks = apply_patch(text, patch)
            await _store(files, path, changed)
            return f"{hunks} hunk{'s' if hunks > 1 else ''} applied to {path}\n"

        return await self._run(path, work)


async def _text(files: Files, path: str) -> str:
    return (await files.read(path)).decode("utf-8", "surrogateescape")


async def _store(files: Files, path: str, text: str) -> None:
    await files.write(path, text.encode("utf-8", "surrogateescape"))


def _why_not(text: str, old: str, count: int) -> str:
    if not old:
        return "there is no text to be replaced"
    return f"the text to be replaced is there {count} times"


def _hint(text: str, old: str, count: int) -> str:
    """What a model most often did wrong."""
    if count > 1:
        lines = [str(text.count("\n", 0, place) + 1) for place in _places(text, old)]
        return f"it is at lines {', '.join(lines)}: give more of what is around it, or everywhere"
    if old and "".join(old.split()) in "".join(text.split()):
        return "the words are there, but not with these blanks and line ends: read the file again and copy them"
    return "read the file again: it may have been changed"


def _places(text: str, old: str, most: int = 8) -> list[int]:
    found: list[int] = []
    start = text.find(old)
    while start >= 0 and len(found) < most:
        found.append(start)
        start = text.find(old, start + len(old))
    return found
