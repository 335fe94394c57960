"""Lines that only notebooks know: magics, and commands of a shell.

A part of one text: `__init__.py`.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

    from ringfence.engines.drivers.python.beginning import SIGINT, namespace
    from ringfence.engines.drivers.python.cells import compile_cell
    from ringfence.engines.drivers.python.displays import HTML, Latex, Markdown, display
    from ringfence.engines.drivers.python.imports import stdlib
    from ringfence.engines.drivers.python.life import flush_streams

NO_PACKAGES = (
    "there is no network inside the sandbox, so nothing can be installed from here; install the package outside, in"
    " the Python environment that the sandbox shows, and start a new context"
)
INSTALLERS = r"\s*(\S*python[\d.]*\s+-m\s+|uv\s+)?(pip[\d.]*|conda|mamba)\s+(install|download)\b"
LINE_MAGICS = ("cd", "env", "matplotlib", "pwd", "time", "timeit")
CELL_MAGICS = ("bash", "html", "latex", "markdown", "sh", "time", "timeit", "writefile")


class NotAvailable(Exception):
    """Something that notebooks have and this has not; the message says what to do instead."""


def translate(source: str) -> tuple[str, bool] | None:
    """Turn a notebook's lines into calls of `Magics`, and say whether the cell is timed; None if there is none.

    Lines keep their numbers. A line counts if a statement could begin there: not inside a string, a bracket or after a
    backslash. Strings are followed by their quotes only; an f-string of 3.12 that holds its own triple quotes is
    misread.
    """
    lines = source.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        name, _, rest = lines[first][2:].strip().partition(" ")
        body = "\n".join(lines[first + 1 :])
        if name == "time" and not rest:
            inner = translate(body)
            return "\n" * (first + 1) + (body if inner is None else inner[0]), True
        return "\n" * first + f"__ringfence__.cell({name!r}, {rest.strip()!r}, {body!r})", False

    translated, quote, depth, is_continued, index = [], "", 0, False, 0
    while index < len(lines):
        line = lines[index]
        if not quote and not depth and not is_continued:
            last = index
            while lines[last].endswith("\\") and last + 1 < len(lines):
                last += 1
            call = translate_line("\n".join(lines[index : last + 1]))
            if call is not None:
                translated += [call] + [""] * (last - index)
                index = last + 1
                continue
        quote, depth, is_continued = follow(line, quote, depth)
        translated.append(line)
        index += 1
    changed = "\n".join(translated)
    return None if changed == source else (changed, False)


def translate_line(line: str) -> str | None:
    re = stdlib("re")
    match = re.match(r"(\s*)(?:([^=!%?#]+?)\s*=\s*)?(!!?|%)(.*)", line, re.DOTALL)
    if match is not None:
        indent, target, mark, rest = match.groups()
        assign = "" if target is None else target + " = "
        if mark == "%":
            name, _, rest = rest.partition(" ")
            if not name.isidentifier():
                return None
            return f"{indent}{assign}__ringfence__.line({name!r}, {rest.strip()!r})"
        method = "lines" if target is not None or mark == "!!" else "system"
        return f"{indent}{assign}__ringfence__.{method}({rest.strip()!r})"
    match = re.match(r"(\s*)(?:\?\??\s*([\w.]+)|([\w.]+)\s*\?\??)\s*$", line)
    if match is not None:
        return f"{match.group(1)}__ringfence__.explain({(match.group(2) or match.group(3))!r})"
    return None


def follow(line: str, quote: str, depth: int) -> tuple[str, int, bool]:
    """Where a line leaves us: the quotes of an open string, the depth of brackets, and whether a backslash ends it."""
    position, end = 0, len(line)
    while position < end:
        if line[position] == "\\":
            if position + 1 == end:
                return quote, depth, True
            position += 2
        elif quote:
            closes = line.startswith(quote, position)
            position += len(quote) if closes else 1
            quote = "" if closes else quote
        elif line[position] == "#":
            break
        elif line[position] in "\"'":
            quote = line[position] * (3 if line.startswith(line[position] * 3, position) else 1)
            position += len(quote)
        else:
            depth = max(0, depth + (line[position] in "([{") - (line[position] in ")]}"))
            position += 1
    return (quote if len(quote) == 3 else ""), depth, False


class Magics:
    """What translated lines call. Names are looked up where the line stands."""

    def system(self, command: str) -> None:
        namespace["_exit_code"] = run_shell(expand(command, sys._getframe(1)))[0]

    def lines(self, command: str) -> list[str]:
        namespace["_exit_code"], output = run_shell(expand(command, sys._getframe(1)), is_captured=True)
        return output.decode("utf-8", "replace").splitlines()

    def line(self, name: str, rest: str) -> Any:
        caller = sys._getframe(1)
        if name == "cd":
            os.chdir(os.path.expanduser(expand(rest, caller).strip("\"'") or "~"))
            print(os.getcwd())
        elif name == "pwd":
            return os.getcwd()
        elif name == "env":
            return environment(expand(rest, caller))
        elif name == "time":
            return timed(rest, caller)
        elif name == "timeit":
            time_often(rest, caller)
        elif name != "matplotlib":  # figures are always inline
            refuse(name, "%")
        return None

    def cell(self, name: str, rest: str, body: str) -> None:
        caller = sys._getframe(1)
        if name in ("bash", "sh"):
            status = run_shell(body, shell=name)[0]
            if status != 0:
                raise stdlib("subprocess").CalledProcessError(status, name)
        elif name == "writefile":
            write_file(expand(rest, caller), body)
        elif name == "timeit":
            time_often(rest + "\n" + body, caller)
        elif name in ("html", "markdown", "latex"):
            display({"html": HTML, "markdown": Markdown, "latex": Latex}[name](body))
        else:
            refuse(name, "%%")

    def explain(self, name: str) -> None:
        caller = sys._getframe(1)
        try:
            value = eval(name, caller.f_globals, caller.f_locals)
        except Exception:
            print(f"Object `{name}` not found.")
            return
        inspect = stdlib("inspect")
        try:
            print(f"{name}{inspect.signature(value)}")
        except (TypeError, ValueError):  # has none
            print(f"{name}: {type(value).__name__}")
        print(inspect.getdoc(value) or "No documentation.")


def refuse(name: str, mark: str) -> NoReturn:
    if name in ("pip", "conda", "mamba", "uv"):
        raise NotAvailable(f"{mark}{name}: {NO_PACKAGES}")
    known = ", ".join(["!command", *("%" + each for each in LINE_MAGICS), *("%%" + each for each in CELL_MAGICS)])
    raise NotAvailable(f"{mark}{name} does not exist here; there are {known} and name?")


def expand(text: str, caller: FrameType) -> str:
    """Put in the values of {expression} and $name; what has no value is the shell's."""

    def value(match: Any) -> str:
        expression = match.group(1) or match.group(2)
        try:
            return match.group() if expression is None else str(eval(expression, caller.f_globals, caller.f_locals))
        except Exception:
            return str(match.group())

    return str(stdlib("re").sub(r"\$\{[^}]*\}|\$\([^)]*\)|\{([^{}]+)\}|\$([A-Za-z_]\w*)", value, text))


def run_shell(command: str, *, shell: str | None = None, is_captured: bool = False) -> tuple[int, bytes]:
    """The exit status, and the output if it is captured instead of passed on."""
    if stdlib("re").match(INSTALLERS, command) and "--no-index" not in command:
        raise NotAvailable(f"{command.split()[0]}: {NO_PACKAGES}")
    subprocess = stdlib("subprocess")
    flush_streams()
    program = shell or ("bash" if os.path.exists("/bin/bash") else "sh")
    # A session of its own, so that an interrupt reaches all of the command.
    process = subprocess.Popen(
        [program, "-c", command], stdout=subprocess.PIPE if is_captured else None, start_new_session=True
    )
    try:
        output = process.communicate()[0]
    except BaseException:
        end_group(process)
        raise
    return process.returncode, output or b""


def end_group(process: Any) -> None:
    subprocess = stdlib("subprocess")
    for number in (SIGINT, 9):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=1)
            return
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def environment(rest: str) -> Any:
    if not rest:
        return dict(os.environ)
    separator = "=" if "=" in rest else " "
    name, given, value = rest.partition(separator)
    if not given:
        return os.environ[name]
    os.environ[name.strip()] = value.strip()
    print(f"env: {name.strip()}={value.strip()}")
    return None


def write_file(rest: str, body: str) -> None:
    words = stdlib("shlex").split(rest)
    appends = words[:1] in (["-a"], ["--append"])
    if len(words) != 1 + appends:
        raise NotAvailable("%%writefile takes one file name, and -a before it to append")
    path = os.path.expanduser(words[-1])
    print(("Appending to" if appends else "Overwriting" if os.path.exists(path) else "Writing"), path)
    with open(path, "a" if appends else "w", encoding="utf-8") as file:
        file.write(body if body.endswith("\n") or not body else body + "\n")


def timed(statement: str, caller: FrameType) -> Any:
    started = clock()
    value = None
    try:
        for code in compile_cell(statement, "<%time>"):
            value = None if code is None else eval(code, caller.f_globals, caller.f_locals)
    finally:
        print_times(started)
    return value


def clock() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def print_times(started: tuple[float, float]) -> None:
    wall, processor = (now - then for now, then in zip(clock(), started))  # noqa: B905 - not before 3.10
    print(f"CPU times: {in_units(processor)}\nWall time: {in_units(wall)}")


def in_units(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def time_often(rest: str, caller: FrameType) -> None:
    options, statement = stdlib("re").match(r"((?:-[nrtcpqo]\s*\d*\s+)*)(.*)", rest, 16).groups()  # re.DOTALL
    given = dict(stdlib("re").findall(r"-([nr])\s*(\d+)", options))
    timer = stdlib("timeit").Timer(statement, globals={**caller.f_globals, **caller.f_locals})
    loops = int(given.get("n", 0)) or timer.autorange()[0]
    each = [total / loops for total in timer.repeat(int(given.get("r", 7)), loops)]
    mean = sum(each) / len(each)
    deviation = (sum((one - mean) ** 2 for one in each) / len(each)) ** 0.5
    print(
        f"{in_units(mean)} ± {in_units(deviation)} per loop"
        f" (mean ± std. dev. of {len(each)} runs, {loops} loops each; best {in_units(min(each))})"
    )
