"""One cell from its source to its end, and what is said of an error in it.

A part of one text: `__init__.py`.
"""

# ruff: noqa: SIM105 - contextlib would add a megabyte
from __future__ import annotations

import _ast
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import CodeType, TracebackType
    from typing import Any

    from ringfence.engines.drivers.python.beginning import (
        FUTURES,
        IS_COROUTINE,
        MAX_TEXT,
        ONLY_AST,
        SIGINT,
        cells,
        compile_flags,
        encode,
        frame,
        is_child,
        linecache,
        loop,
        modules,
        namespace,
        on_interrupt,
        os_exit,
        parts,
        public,
        signals,
        sources,
        this,
        write_all,
    )
    from ringfence.engines.drivers.python.displays import (
        PLAIN,
        close_figure,
        display,
        forms_of,
        is_figure,
        open_figures,
        plain,
        plain_str,
    )
    from ringfence.engines.drivers.python.imports import Library, complete_linecache, stdlib
    from ringfence.engines.drivers.python.life import (
        call,
        directory,
        flush_foreign_streams,
        flush_streams,
        is_replaced,
        stderr,
        stdout,
    )
    from ringfence.engines.drivers.python.notebook import clock, print_times, translate

    # Of `beginning`; set here.
    is_running: bool
    was_interrupted: bool

# --- one cell ---------------------------------------------------------------------------------------------------------


def compile_cell(source: str, name: str) -> tuple[CodeType | None, CodeType | None]:
    """The statements, and the expression at the end whose value shows; either may be missing."""
    global compile_flags
    if "\n" not in source:  # most likely one expression, which is three times as fast without a tree
        try:
            return None, compile(source, name, "eval", compile_flags, True)
        except (SyntaxError, ValueError):
            pass
    tree: Any = compile(source, name, "exec", compile_flags | ONLY_AST, True)
    body = tree.body
    last = None
    if body and type(body[-1]) is _ast.Expr and not (";" in source and is_silenced(source, body[-1].value)):
        last = _ast.Expression(body.pop().value)
    statements = None
    if body:
        statements = compile(tree, name, "exec", compile_flags, True)
        compile_flags |= statements.co_flags & FUTURES
    return statements, None if last is None else compile(last, name, "eval", compile_flags, True)


def is_silenced(source: str, expression: Any) -> bool:
    """Whether a semicolon follows. Columns count bytes; a bracket around the expression is no part of it."""
    lines = source.encode("utf-8", "replace").splitlines()[expression.end_lineno - 1 :]
    lines[0] = lines[0][expression.end_col_offset :]
    for line in lines:
        line = line.lstrip(b" \t\f)\\")
        if line and not line.startswith(b"#"):
            return line.startswith(b";")
    return False


def evaluate(source: str, name: str) -> Any:
    is_timed = False
    refused = None
    try:
        codes = compile_cell(source, name)
    except SyntaxError as error:
        refused = error
    if refused is not None:  # out of the handler, so that what follows does not carry this error along
        translated = translate(source)
        if translated is None:
            raise refused
        source, is_timed = translated
        codes = compile_cell(source, name)
    started = clock() if is_timed else None
    value = None
    try:
        for code in codes:
            if code is not None and code.co_flags & IS_COROUTINE:
                value = wait_for(run_awaiting(codes))
                break
        else:
            for code in codes:
                if code is not None:
                    value = eval(code, namespace)
    finally:
        if started is not None:
            print_times(started)
    return None if codes[1] is None else value


async def run_awaiting(codes: tuple[CodeType | None, ...]) -> Any:
    """A cell that awaits anywhere has a running loop everywhere."""
    value = None
    for code in codes:
        if code is not None:
            value = eval(code, namespace)
            if code.co_flags & IS_COROUTINE:
                value = await value
    return value


def wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a cell that awaits. Its exception is carried around the event loop, whose frames are not the user's."""
    global loop
    asyncio = stdlib("asyncio")
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # asyncio.run() in an earlier cell has taken it away
    value = error = None

    async def carry() -> None:
        nonlocal value, error
        try:
            value = await coroutine
        except BaseException as raised:
            error = raised

    task = loop.create_task(carry())
    try:
        loop.run_until_complete(task)
    except KeyboardInterrupt:  # came while the loop itself was waiting
        task.cancel()
        loop.run_until_complete(task)
        error = KeyboardInterrupt().with_traceback(None if error is None else error.__traceback__)
    if error is not None:
        raise error
    return value


def remember_lines(name: str) -> None:
    source = sources[name]
    cache = getattr(linecache, "cache", None)
    if isinstance(cache, dict):
        cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)


def run_code(source: str, name: str, frames: list[bytes]) -> None:
    """All that may take long, raise anything and be interrupted."""
    try:
        value = evaluate(source, name)
        if value is not None:
            public["_"] = value
            if type(value) in PLAIN and not is_child:
                frames.append(frame(b"result", parts({"text/plain": encode(plain(value))})))
            elif is_child:
                display(value)
            else:
                frames.append(forms_of(value).frame(b"result"))
                if is_figure(value):
                    close_figure(value)
    finally:
        if "matplotlib.pyplot" in modules and not is_child:
            frames += open_figures()
        if is_replaced("stdout", stdout) or is_replaced("stderr", stderr):
            flush_foreign_streams()


def run_cell(source: str) -> bytes:
    """Run one cell; the frames that are still to be sent, the last of which is `done`."""
    global cells, is_running, was_interrupted
    cells += 1
    name = "<cell %d>" % cells  # noqa: UP031 - the fastest way
    sources[name] = source
    if linecache is not None:
        remember_lines(name)
    frames: list[bytes] = []
    failure = None
    back = b""
    try:
        is_running = True
        if directory:
            back = os.getcwdb()
            os.chdir(directory)
        run_code(source, name, frames)
        is_running = False
    except BaseException as error:
        is_running = False
        failure = error
    if back:
        go_back(back)
    was_interrupted = False
    if signals.getsignal(SIGINT) is not on_interrupt:
        signals.signal(SIGINT, on_interrupt)
    status = 0 if failure is None else report(failure, frames)
    flush_streams()
    if is_child:
        os_exit(status)
    frames.append(done(status))
    return b"".join(frames)


def go_back(place: bytes) -> None:
    """After a cell that was run in a directory of its own; what the cell was in before may be gone."""
    try:
        os.chdir(place)
    except OSError:
        pass


def done(status: int) -> bytes:
    return frame(b"done", b"%b %d" % (call, status))


# --- errors -----------------------------------------------------------------------------------------------------------


def report(error: BaseException, frames: list[bytes]) -> int:
    """Tell of an exception on stderr, and in a frame; the exit status of the cell."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None or isinstance(code, int):
            return (code or 0) & 0xFF
        print_error(plain_str(error) + "\n")
        return 1
    try:
        text = format_error(error)
    except BaseException as another:  # recursion limit, memory, an exception that breaks the formatting
        text = f"{type(error).__name__}: {plain_str(error)}\n(its traceback is missing: {type(another).__name__})\n"
    print_error(text)
    if len(text) > MAX_TEXT:
        text = "(the beginning is cut)\n" + text[-MAX_TEXT:]
    said = (("type", type(error).__name__), ("value", plain_str(error)), ("traceback", text))
    body = parts({name: encode(each) for name, each in said})
    frames.append(frame(b"error", body))
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def format_error(error: BaseException) -> str:
    traceback = stdlib("traceback")
    complete_linecache(stdlib("linecache"))  # the code may have cleared it
    pending: list[Any] = [error]
    seen = set()
    while pending:
        one = pending.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = without_us(one.__traceback__)
            pending += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    with Library():  # some versions import more as they format
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def without_us(entry: TracebackType | None) -> TracebackType | None:
    kept = []
    while entry is not None:
        if entry.tb_frame.f_globals is not this:
            kept.append(entry)
        entry = entry.tb_next
    following = None
    for entry in reversed(kept):
        if entry.tb_next is not following:
            entry.tb_next = following
        following = entry
    return following


def print_error(text: str) -> None:
    flush_streams()
    try:
        write_all(2, encode(text))
    except OSError:
        pass
