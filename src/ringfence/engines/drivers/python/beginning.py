"""Runs cells of Python inside a sandbox, one after another, and keeps their state in between.

Theory of operation: the parts of this package are joined to one text (`__init__.py`), which is handed to an interpreter
(3.8 or later) and talks on a stream socket, descriptor 9. `run LENGTH CALL\\n` plus source comes in; `KIND LENGTH\\n`
plus body goes out: `ready` once, then per cell any number of `display`, at most one `result` or `error`, and always a
last `done` with the exit code. What the code prints goes to descriptors 1 and 2 directly and is flushed before `done`.

One process may idle for hours and then has to answer within microseconds. Therefore little is imported before `ready`;
what only errors, figures or magics need comes later, by `stdlib`, past whatever the workspace calls its files. The
plain path of a cell is compile, eval, one write. Lines that only notebooks know are looked for when Python has refused
the cell, so that valid Python never pays for them and is never changed by them.

The code may break anything that it can reach. This module has its own copy of the builtins and its own references to
the system calls; an interrupt is an exception only while the code runs; and if all else fails the process exits, so
that the other side sees the end of the stream instead of waiting.

What this does not protect against: code that means harm. It can write frames itself or close the socket; whoever reads
the frames must treat them as the code's own words.
"""

from __future__ import annotations

import _thread
import builtins
import os
import sys

TYPE_CHECKING = False  # the name is enough for type checkers; importing typing costs a megabyte
if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
    from typing import Any
else:
    import _signal  # `signal` alone would add enum and more, 0.8 MB
signals = _signal

# Before any function is made: each takes its builtins from here, so that code that replaces `len` does not reach us.
__builtins__ = dict(builtins.__dict__)  # type: ignore[assignment]  # a module in stubs, either in truth

CHANNEL = 9
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_TEXT = 100_000
MAX_PRETTY = 20_000  # pprint takes 10 µs per element; beyond this the plain repr has to do
WARM_UP_CELLS = 20  # 3.11 and later specialise bytecode after some runs

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURES = 0x1FE0000  # the compiler flags in __future__
IS_COROUTINE = 0x80  # inspect.CO_COROUTINE
SIGINT = 2
IGNORED = (13, 25)  # SIGPIPE and SIGXFSZ, as an interpreter has them from its start

read, write, os_exit = os.read, os.write, os._exit
get_blocking, set_blocking, dup2 = os.get_blocking, os.set_blocking, os.dup2
modules = sys.modules
public = builtins.__dict__
this = globals()

main = type(sys)("__main__")
namespace = main.__dict__

cells = 0
compile_flags = TOP_LEVEL_AWAIT
sources: dict[str, str] = {}
linecache: Any = None
loop: Any = None
is_child = False

# --- interrupts -------------------------------------------------------------------------------------------------------
# Never SIG_IGN, which children of the code would inherit.

is_running = False
is_sending = False
was_interrupted = False
main_thread = _thread.get_ident()


def on_interrupt(number: int, frame: FrameType | None) -> None:
    global was_interrupted
    if is_sending:  # half a frame would desynchronise the stream
        was_interrupted = True
    elif is_running:
        raise KeyboardInterrupt


# --- the channel ------------------------------------------------------------------------------------------------------

channel_lock = _thread.allocate_lock()  # threads of the code may display things


def frame(kind: bytes, body: bytes) -> bytes:
    return b"%b %d\n%b" % (kind, len(body), body)


def send(data: bytes) -> None:
    global is_sending, was_interrupted
    if _thread.get_ident() != main_thread:
        with channel_lock:
            write_all(CHANNEL, data)
        return
    is_sending = True
    try:
        with channel_lock:
            write_all(CHANNEL, data)
    except OSError:
        os_exit(1)
    is_sending = False
    if was_interrupted:
        was_interrupted = False
        if is_running:
            raise KeyboardInterrupt


def write_all(descriptor: int, data: bytes) -> None:
    written = write(descriptor, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[write(descriptor, rest) :]


def parts(members: dict[str, bytes]) -> bytes:
    return b"".join([b"%b %d\n%b" % (encode(name), len(data), data) for name, data in members.items()])


def encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
