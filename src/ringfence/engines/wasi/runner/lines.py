"""Runs a line that the manager has taken apart: sequences, conditions, pipelines, redirections.

A process that has run a module never forks: threads of wasmtime would be missing in the child. So each program of a
line has a process of its own, made before, but for a line that is a single one.
"""

import os

from beneath import expand, open_beneath
from programs import Machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FLAGS = {
    "<": os.O_RDONLY,
    ">": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    ">>": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}
_NOT_OPENED = 1
_SIGNAL_BASE = 128


class Line:
    def __init__(self, machine: Machine, directory: str) -> None:
        self._machine = machine
        self._directory = directory
        self._top = os.open(machine.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def run(self, items: "list[dict[str, Any]]") -> int:
        """Run it; the exit code of its last command."""
        code, joint = 0, ""
        for at, item in enumerate(items):
            if not ((joint == "&&" and code) or (joint == "||" and not code)):
                is_last = at == len(items) - 1
                code = self._item(item["stages"], is_last=is_last)
                if code < 0:
                    return -code - 1
            joint = item["joint"]
        return code

    def _item(self, stages: "list[dict[str, Any]]", *, is_last: bool) -> int:
        """The exit code; -1 - CODE if the line ends here."""
        if len(stages) > 1:
            return self._pipeline(stages)
        (stage,) = stages
        words = self._words(stage)
        if stage["kind"] == "cd":
            return self._change_directory(words)
        if stage["kind"] == "exit":
            return -1 - (int(words[1]) & 0xFF if len(words) > 1 and words[1].isdigit() else 0)
        if is_last:
            return self._execute(stage)
        return _status(self._fork(stage, -1, -1, []))

    def _words(self, stage: "dict[str, Any]") -> "list[str]":
        words: list[str] = []
        for word in stage["argv"]:
            words += [word] if isinstance(word, str) else expand(self._top, self._directory, word[0])
        return words

    def _change_directory(self, words: "list[str]") -> int:
        path = words[1] if len(words) > 1 else "/workspace"
        place = os.path.normpath(os.path.join("/workspace", self._directory, path))
        below = _below(place)
        try:
            if below is None:
                raise PermissionError(1, "it is outside of the workspace")
            os.close(open_beneath(self._top, below, os.O_PATH | os.O_DIRECTORY))
        except OSError as fault:
            os.write(2, f"cd: {path}: {fault.strerror}\n".encode("utf-8", "backslashreplace"))
            return 1
        self._directory = below
        return 0

    def _pipeline(self, stages: "list[dict[str, Any]]") -> int:
        children, before = [], -1
        for at, stage in enumerate(stages):
            reading, writing = os.pipe() if at < len(stages) - 1 else (-1, -1)
            children.append(self._fork(stage, before, writing, [reading]))
            for descriptor in (before, writing):
                if descriptor >= 0:
                    os.close(descriptor)
            before = reading
        return [_status(child) for child in children][-1]

    def _fork(self, stage: "dict[str, Any]", stdin: int, stdout: int, close: "list[int]") -> int:
        child = os.fork()
        if child:
            return child
        code = 125
        try:
            for descriptor in close:
                if descriptor >= 0:
                    os.close(descriptor)
            if stdin >= 0:
                os.dup2(stdin, 0)
            if stdout >= 0:
                os.dup2(stdout, 1)
            code = self._execute(stage)
        finally:
            os._exit(code)

    def _execute(self, stage: "dict[str, Any]") -> int:
        try:
            for redirect in stage["redirects"]:
                self._redirect(*redirect)
        except OSError as fault:
            name = stage["argv"][0]
            os.write(2, f"{name}: {fault.filename or ''}: {fault.strerror}\n".encode("utf-8", "backslashreplace"))
            return _NOT_OPENED
        words = self._words(stage)
        if stage["kind"] in ("cd", "exit"):  # in a pipeline they change nothing for anybody
            return 0
        return self._machine.run({**stage, "argv": words}, self._directory)

    def _redirect(self, descriptor: int, operator: str, target: "str | int") -> None:
        if operator == "&":
            os.dup2(int(target), descriptor)
            return
        if operator == "text":
            opened = os.memfd_create("text")
            os.write(opened, str(target).encode("utf-8", "surrogateescape"))
            os.lseek(opened, 0, os.SEEK_SET)
        elif target == "/dev/null":
            opened = os.open("/dev/null", os.O_RDWR)
        else:
            place = os.path.normpath(os.path.join("/workspace", self._directory, str(target)))
            below = _below(place)
            if below is None:
                raise PermissionError(1, "it is outside of the workspace", str(target))
            opened = open_beneath(self._top, below, _FLAGS[operator])
        os.dup2(opened, descriptor)
        os.close(opened)


def _below(place: str) -> "str | None":
    """A path inside as seen from the workspace; None if it lies elsewhere."""
    if place == "/workspace":
        return ""
    return place.removeprefix("/workspace/") if place.startswith("/workspace/") else None


def _status(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SIGNAL_BASE + os.WTERMSIG(status)
