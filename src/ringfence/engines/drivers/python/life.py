"""The streams, and the process from its preparation to its end.

A part of one text: `__init__.py`.
"""

# ruff: noqa: SIM105 - contextlib would add a megabyte
from __future__ import annotations

import builtins
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from ringfence.engines.drivers.python.beginning import (
        CHANNEL,
        IGNORED,
        SIGINT,
        WARM_UP_CELLS,
        dup2,
        frame,
        get_blocking,
        linecache,
        main,
        modules,
        namespace,
        on_interrupt,
        os_exit,
        public,
        read,
        send,
        set_blocking,
        signals,
        sources,
        this,
    )
    from ringfence.engines.drivers.python.cells import done, print_error, report, run_cell
    from ringfence.engines.drivers.python.displays import attribute, shown_names
    from ringfence.engines.drivers.python.imports import (
        Finder,
        complete_ipython,
        complete_linecache,
        complete_multiprocessing,
        complete_pyplot,
        trusted_path,
    )
    from ringfence.engines.drivers.python.notebook import Magics

    # Of `beginning`; set here.
    is_child: bool
    cells: int
    is_running: bool

# --- streams ----------------------------------------------------------------------------------------------------------


def open_stream(descriptor: int) -> Any:
    """Lines leave at once, so that they can be watched, and are not lost with a cell that is killed."""
    return open(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False)


def flush_streams() -> None:
    """Flush our own; a closed descriptor is put back first, and then gets what was left for it."""
    for stream in (stdout, stderr):
        for _ in range(2):
            try:
                stream.flush()
                break
            except ValueError:  # closed
                break
            except OSError:
                repair_descriptors()
            except BaseException:
                break


def flush_foreign_streams() -> None:
    """Flush what the code has put in the place of ours."""
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None:
                stream.flush()
        except Exception:
            pass


def repair_descriptors() -> None:
    for descriptor, spare in ((1, spare_stdout), (2, spare_stderr)):
        try:
            if not get_blocking(descriptor):  # some programs that the code starts leave it so, and it is shared
                set_blocking(descriptor, True)
        except OSError:
            try:
                dup2(spare, descriptor)
            except OSError:
                pass


def repair_streams() -> None:
    global stdout, stderr
    if stdout.closed:
        stdout = open_stream(1)
    if stderr.closed:
        stderr = open_stream(2)
    if not is_usable(getattr(sys, "stdout", None)):
        sys.stdout = stdout
    if not is_usable(getattr(sys, "stderr", None)):
        sys.stderr = stderr


def is_replaced(name: str, stream: Any) -> bool:
    return getattr(sys, name, None) is not stream


def is_usable(stream: Any) -> bool:
    return callable(attribute(stream, "write")) and attribute(stream, "closed") is not True


# --- life -------------------------------------------------------------------------------------------------------------


def ask_nobody(prompt: object = "", /) -> str:
    """Stands in for input()."""
    print(prompt, end="", flush=True)
    raise EOFError(
        "input() has nobody to ask: standard input is empty inside the sandbox; put the values into the code"
    )


def leave(code: Any = None) -> NoReturn:
    """Stands in for exit() and quit(), which would close standard input."""
    raise SystemExit(code)


def become_child() -> None:
    """A child must neither talk for us nor keep the other side waiting for the end of the stream."""
    global is_child
    is_child = True
    for descriptor in (CHANNEL, spare_stdout, spare_stderr):
        try:
            os.close(descriptor)
        except OSError:
            pass


def prepare() -> None:
    """What is the same wherever this interpreter is."""
    sys.argv = [""]
    sys.meta_path.insert(0, Finder())
    if "linecache" in modules:
        complete_linecache(modules["linecache"])
    namespace["__builtins__"] = builtins
    modules["__main__"] = main
    sys.stdout, sys.stderr = stdout, stderr
    public.update(shown_names)
    public.update(input=ask_nobody, exit=leave, quit=leave, __ringfence__=Magics())
    sys.path = [entry for entry in sys.path if entry]


def settle() -> None:
    """What belongs to this process, which a cell and its children are in."""
    global spare_stdout, spare_stderr
    spare_stdout, spare_stderr = os.dup(1), os.dup(2)
    os.set_inheritable(CHANNEL, False)
    os.environ.setdefault("MPLBACKEND", "Agg")
    signals.signal(SIGINT, on_interrupt)
    os.register_at_fork(after_in_child=become_child)


def preload(names: list[str]) -> None:
    for name in names:
        try:
            __import__(name)
        except Exception:  # the cell that imports it will hear of it
            pass


def stand_ready() -> list[str]:
    """In a zygote: everything that is the same in all boxes, and then, in one of them, the rest. Returns what to
    preload."""
    prepare()
    warm_up()
    arguments, variables = this["become"]()
    for name in list(os.environb):
        del os.environb[name]
    for variable in variables:
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    for number in IGNORED:
        signals.signal(number, signals.SIG_IGN)
    modules["time"].tzset()
    add_user_site()
    return [os.fsdecode(argument) for argument in arguments]


def add_user_site() -> None:
    """A zygote has no home; what the home in the box has for this interpreter comes where it would have come."""
    global own_path
    site: Any = modules["site"]
    site.USER_BASE = site.USER_SITE = None
    site.ENABLE_USER_SITE = site.check_enableusersite()
    system = [entry for entry in sys.path if entry in site.getsitepackages()]
    others = [entry for entry in sys.path if entry not in system]
    sys.path[:] = others
    site.addusersitepackages(set(others))
    sys.path += system
    own_path = trusted_path()


def begin() -> None:
    """Everything that can be done before the first cell comes."""
    if "become" in this:
        preloads = stand_ready()
        settle()
        preload(preloads)
        gc.freeze()
    else:
        preloads = sys.argv[1:]
        prepare()
        settle()
        preload(preloads)
        warm_up()
    sys.path.insert(0, "")
    repair_streams()


def warm_up() -> None:
    global cells
    for _ in range(WARM_UP_CELLS):
        run_cell("1+1")
    run_cell("import sys\nsys")
    cells = 0
    sources.clear()
    if linecache is not None:
        linecache.clearcache()
    public.pop("_", None)
    namespace.pop("sys", None)
    gc.collect()
    gc.freeze()


def tidy() -> None:
    """Undo what must not outlive a cell. Comes after `done`, so that nobody waits for it."""
    signals.signal(SIGINT, on_interrupt)
    namespace.pop("__warningregistry__", None)  # another cell has other lines
    if "__builtins__" not in namespace:
        namespace["__builtins__"] = builtins
    modules["__main__"] = main
    repair_descriptors()
    if is_replaced("stdout", stdout) or is_replaced("stderr", stderr) or stdout.closed or stderr.closed:
        repair_streams()


call = b""
directory = b""
"""What the caller gave the cell to be known by: an end without it answers nobody."""


def receive(buffered: bytes) -> tuple[str, bytes]:
    """The source of the next cell, and what was read beyond it."""
    global call, directory
    end = buffered.find(b"\n")
    while end < 0:
        chunk = read(CHANNEL, 65536)
        if not chunk:
            os_exit(0)
        buffered += chunk
        end = buffered.find(b"\n")
    if buffered[:4] != b"run ":
        os_exit(1)
    length, _, call = buffered[4:end].partition(b" ")
    call, _, place = call.partition(b" ")
    directory = bytes.fromhex(place.decode()) if place else b""
    needed = end + 1 + int(length)
    if len(buffered) < needed:
        chunks, size = [buffered], len(buffered)
        while size < needed:
            chunk = read(CHANNEL, min(needed - size, 1 << 20))
            if not chunk:
                os_exit(0)
            chunks.append(chunk)
            size += len(chunk)
        buffered = b"".join(chunks)
    return buffered[end + 1 : needed].decode("utf-8", "replace"), buffered[needed:]


def serve() -> None:
    global is_running
    try:
        begin()
        send(frame(b"ready", ".".join(map(str, sys.version_info[:3])).encode()))
        buffered = b""
        while True:
            source, buffered = receive(buffered)
            try:
                frames = run_cell(source)
            except BaseException as error:  # before 3.11 an interrupt can come between any two instructions of ours
                is_running = False
                kept: list[bytes] = []
                status = report(error, kept)
                frames = b"".join([*kept, done(status)])
            send(frames)
            tidy()
    except BaseException:
        print_error("the context failed\n")
    finally:
        os_exit(1)


if __name__ == "__main__":
    own_path = trusted_path()
    spare_stdout = spare_stderr = -1
    stdout, stderr = open_stream(1), open_stream(2)
    stand_ins = frozenset({"IPython", "IPython.core", "IPython.core.display", "IPython.display"})
    arrivals: dict[str, Callable[[Any], None]] = {
        "linecache": complete_linecache,
        "matplotlib.pyplot": complete_pyplot,
        "IPython.core.display": complete_ipython,
        "IPython.core.display_functions": complete_ipython,
        "multiprocessing.context": complete_multiprocessing,
    }
    # By way of foreign globals: before 3.10 a function shares the builtins of its caller if it shares its globals.
    eval("serve()", {"serve": serve})
