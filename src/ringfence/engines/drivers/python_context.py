"""Runs cells of Python inside a sandbox, one after another, and keeps their state in between.

Theory of operation: this file is self-contained, is handed to an interpreter (3.8 or later) as text, and talks on a
stream socket, descriptor 9. `run LENGTH CALL\\n` plus source comes in; `KIND LENGTH\\n` plus body goes out: `ready`
once, then per cell any number of `display`, at most one `result` or `error`, and always a last `done` with the exit
code. What the code prints goes to descriptors 1 and 2 directly and is flushed before `done`.

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

# ruff: noqa: SIM105 - contextlib would add a megabyte
from __future__ import annotations

import _ast
import _thread
import builtins
import gc
import io
import os
import sys
import time

TYPE_CHECKING = False  # the name is enough for type checkers; importing typing costs a megabyte
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Coroutine, Sequence
    from types import CodeType, FrameType, ModuleType, TracebackType
    from typing import Any, NoReturn
else:
    import _signal  # `signal` alone would add enum and more, 0.8 MB

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


# --- late imports -----------------------------------------------------------------------------------------------------

late: dict[str, ModuleType] = {}
displaced: dict[str, ModuleType] = {}  # modules of the library whose names belong to modules of the code


def trusted_path() -> list[str]:
    """Where modules come from, without what the workspace has a say in."""
    asked_for = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in sys.path if entry not in ("", ".") and entry not in asked_for]


class Library:
    """While entered, the standard library is what is imported, also by its own modules when they are called."""

    def __enter__(self) -> None:
        self.path = sys.path
        self.impostors = {name: modules[name] for name in list(modules) if is_impostor(name)}
        for name in self.impostors:
            if name in displaced:
                modules[name] = displaced[name]
            else:
                del modules[name]
        sys.path = own_path

    def __exit__(self, *_: object) -> None:
        sys.path = self.path
        for name, impostor in self.impostors.items():
            if name in modules:
                displaced[name] = modules[name]
            modules[name] = impostor


def stdlib(name: str) -> Any:
    """Import a module of the standard library, whatever modules the workspace has and the code has imported."""
    found = late.get(name)
    if found is None:
        with Library():
            __import__(name)
            found = late[name] = modules[name]
    return found


def is_impostor(name: str) -> bool:
    """Whether the loaded module has the name of one of the standard library, and is not it."""
    if name.partition(".")[0] not in getattr(sys, "stdlib_module_names", ()) and name not in LATE_NAMES:
        return False
    file = getattr(modules[name], "__file__", None)
    return isinstance(file, str) and not any(file.startswith(entry + "/") for entry in own_path)


# 3.8 and 3.9 do not know the names of their library: what we import ourselves, and what that imports.
LATE_NAMES = frozenset(
    "__future__ ast asyncio binascii collections contextlib copyreg dataclasses dis enum functools inspect itertools"  # noqa: SIM905
    " json keyword linecache opcode operator pprint re reprlib selectors shlex signal socket sre_compile sre_constants"
    " sre_parse subprocess textwrap threading timeit token tokenize traceback types warnings weakref".split()
)


class Finder:
    """Sees some modules come in: to complete them, or to stand in for an IPython that is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name not in arrivals and name not in stand_ins:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if name in arrivals and hasattr(spec.loader, "exec_module"):
                    spec.loader = Completing(spec.loader, arrivals[name])
                return spec
        make_spec: Any = type(os.__spec__)
        return make_spec(name, StandIn(), is_package=True) if name in stand_ins else None


class Completing:
    """The loader of a module, and something to do with the module afterwards."""

    def __init__(self, loader: Any, complete: Callable[[Any], None]) -> None:
        self.loader = loader
        self.complete = complete

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.complete(module)


class StandIn:
    """Makes as much of IPython as programs use that only want to show something."""

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__dict__.update(shown_names)
        module.__dict__.update(
            publish_display_data=publish_display_data,
            update_display=display,
            clear_output=clear_output,
            get_ipython=get_ipython,
            version_info=(0, 0, 0),
            __version__="0.0.0",
        )


def complete_linecache(module: Any) -> None:
    global linecache
    linecache = module
    for name in sources:
        remember_lines(name)


def complete_pyplot(module: Any) -> None:
    module.show = show_figures


def complete_ipython(module: Any) -> None:
    """Without a shell of its own IPython prints what it should display."""
    module.display = display
    module.publish_display_data = publish_display_data


def complete_multiprocessing(module: Any) -> None:
    """From 3.14 children start afresh by default, and would not find what cells define."""
    if sys.version_info >= (3, 14):
        module._default_context._default_context = module._concrete_contexts["fork"]


# --- displaying -------------------------------------------------------------------------------------------------------

LONG = frozenset({list, tuple, dict, set, frozenset, str, bytes})
PLAIN = LONG | {int, float, bool, complex}  # have no form but their repr
CANARY = "_ipython_canary_method_should_not_exist_"  # who has this has everything, such as a mock
METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_json_", "application/json"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
)


class Forms:
    """One thing in all its forms, by MIME type."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def add(self, mime: str, data: Any) -> None:
        if isinstance(data, tuple) and len(data) == 2:
            data = data[0]  # the other half is metadata
        if data is None:
            return
        if is_binary(mime):
            self.data[mime] = stdlib("binascii").a2b_base64(data) if isinstance(data, str) else bytes(data)
        elif isinstance(data, (bytes, bytearray)):
            self.data[mime] = bytes(data)
        elif isinstance(data, str):
            self.data[mime] = encode(data)
        elif mime.endswith("json"):
            self.data[mime] = encode(stdlib("json").dumps(data, default=str))
        else:
            self.data[mime] = encode(str(data))

    def frame(self, kind: bytes) -> bytes:
        body = parts(self.data)
        if len(body) > MAX_FRAME_BYTES:
            names = ", ".join(self.data)
            note = f"(not shown: {names} take {len(body)} bytes, at most {MAX_FRAME_BYTES} can be shown at once)"
            body = parts({"text/plain": encode(note)})
        return frame(kind, body)


def is_binary(mime: str) -> bool:
    return mime == "application/pdf" or (mime.startswith(("image/", "audio/", "video/")) and mime != "image/svg+xml")


def forms_of(value: Any) -> Forms:
    forms = Forms()
    if type(value) not in PLAIN and not isinstance(value, type):
        if not is_figure(value):
            add_rich_forms(forms, value)
        elif value.axes or value.lines:
            try:
                forms.add("image/png", png_of(value))
            except Exception as error:
                forms.add(
                    "text/plain", f"{plain(value)} could not be drawn: {type(error).__name__}: {plain_str(error)}"
                )
    if "text/plain" not in forms.data:
        forms.data["text/plain"] = encode(plain(value))
    return forms


def add_rich_forms(forms: Forms, value: Any) -> None:
    """Ask by the methods that IPython asks by. One that fails is one form less."""
    if attribute(value, CANARY) is not None:
        return
    ask = attribute(value, "_repr_mimebundle_")
    if ask is not None:
        try:
            bundle = ask(include=None, exclude=None)
            add_bundle(forms, bundle)
        except Exception:
            pass
    for name, mime in METHODS:
        if mime in forms.data or (mime == "image/jpeg" and "image/png" in forms.data):
            continue
        ask = attribute(value, name)
        if ask is not None:
            try:
                forms.add(mime, ask())
            except Exception:
                pass


def add_bundle(forms: Forms, bundle: Any) -> None:
    for mime, data in (bundle[0] if isinstance(bundle, tuple) else bundle or {}).items():
        forms.add(str(mime), data)


def attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def plain(value: Any) -> str:
    try:
        kind = type(value)
        text = repr(beginning(value, kind) if kind in LONG else value)
        if len(text) > 80 and len(text) <= MAX_PRETTY and kind in (list, tuple, dict, set, frozenset):
            text = stdlib("pprint").pformat(value, width=100, compact=True, sort_dicts=False)
    except Exception as error:
        return f"<{type(value).__name__} object whose repr() raised {type(error).__name__}: {plain_str(error)}>"
    return cut(text)


def beginning(value: Any, kind: type) -> Any:
    """As much of something long as can show, for the whole may take minutes to write out."""
    if len(value) <= MAX_TEXT:  # each element takes at least three characters, but may take more
        return value
    if kind in (list, tuple, str, bytes):
        return value[: MAX_TEXT + 1]
    islice = stdlib("itertools").islice
    return dict(islice(value.items(), MAX_TEXT)) if kind is dict else kind(islice(value, MAX_TEXT))


def cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT] + f"\n... (cut after {MAX_TEXT} characters)"


def plain_str(error: BaseException) -> str:
    try:
        return cut(str(error))
    except Exception:
        return "<exception str() failed>"


def display(*values: Any, raw: bool = False, display_id: Any = None, **_: Any) -> Handle | None:
    """Show each value in its richest forms."""
    for value in values:
        if is_child:
            print(plain(value))
        elif raw:
            publish_display_data(value)
        else:
            send(forms_of(value).frame(b"display"))
            if is_figure(value):
                close_figure(value)
    return None if display_id is None else Handle()


class Handle:
    """What was shown stays as it is; the new state is shown after it."""

    def update(self, value: Any, **options: Any) -> None:
        display(value, **options)

    display = update


def publish_display_data(data: dict[str, Any], *_: Any, **__: Any) -> None:
    forms = Forms()
    add_bundle(forms, data)
    if not is_child:
        send(forms.frame(b"display"))


def clear_output(*_: Any, **__: Any) -> None:
    """What has been shown stays shown."""


def get_ipython() -> None:
    """There is none."""


class Shown:
    """Something whose form is known: a text or the content of a file."""

    mime = "text/plain"

    def __init__(self, data: Any = None, url: str | None = None, filename: str | None = None, **_: Any) -> None:
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data
        self.url = url
        self.filename = filename

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {self.mime: self.data}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object>"


class HTML(Shown):
    mime = "text/html"


class Markdown(Shown):
    mime = "text/markdown"


class Latex(Shown):
    mime = "text/latex"


class JSON(Shown):
    mime = "application/json"


class SVG(Shown):
    mime = "image/svg+xml"


class Image(Shown):
    STARTS = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))

    def __init__(self, data: Any = None, url: str | None = None, filename: str | None = None, **options: Any) -> None:
        if isinstance(data, str):  # IPython takes a path or an address here, too
            if "://" in data:
                data, url = None, data
            else:
                data, filename = None, data
        super().__init__(data, url, filename, **options)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.data is None:
            return {"text/html": f'<img src="{self.url}"/>'}
        for start, mime in self.STARTS:
            if self.data.startswith(start):
                return {mime: self.data}
        return {"image/svg+xml" if b"<svg" in self.data[:1000] else "image/png": self.data}


shown_names: dict[str, Any] = {
    "display": display,
    "HTML": HTML,
    "Markdown": Markdown,
    "Latex": Latex,
    "JSON": JSON,
    "Image": Image,
    "SVG": SVG,
}

# --- figures ----------------------------------------------------------------------------------------------------------


def is_figure(value: Any) -> bool:
    module = modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def png_of(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


def close_figure(figure: Any) -> None:
    """What was shown is not shown again at the end of the cell."""
    pyplot = modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)


def open_figures() -> list[bytes]:
    """The frames of all open figures, which are closed."""
    pyplot: Any = modules.get("matplotlib.pyplot")
    try:
        numbers = pyplot.get_fignums()
    except AttributeError:  # its import did not get far
        return []
    frames = []
    try:
        for number in numbers:
            frames.append(forms_of(pyplot.figure(number)).frame(b"display"))
    finally:
        if numbers:
            pyplot.close("all")
    return frames


def show_figures(*_: Any, **__: Any) -> None:
    """Stands in for pyplot.show."""
    frames = open_figures()
    if frames and not is_child:
        send(b"".join(frames))


# --- lines that notebooks know ----------------------------------------------------------------------------------------

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
    try:
        is_running = True
        run_code(source, name, frames)
        is_running = False
    except BaseException as error:
        is_running = False
        failure = error
    was_interrupted = False
    if _signal.getsignal(SIGINT) is not on_interrupt:
        _signal.signal(SIGINT, on_interrupt)
    status = 0 if failure is None else report(failure, frames)
    flush_streams()
    if is_child:
        os_exit(status)
    frames.append(done(status))
    return b"".join(frames)


def done(status: int) -> bytes:
    return frame(b"done", b"%b %d" % (call, status))


# --- errors -----------------------------------------------------------------------------------------------------------


def report(error: BaseException, frames: list[bytes]) -> int:
    """Tell of an exception on stderr, and in a frame; the exit status of the cell."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None or isinstance(code, int):
            return (code or 0) & 0xFF
        complain(plain_str(error) + "\n")
        return 1
    try:
        text = format_error(error)
    except BaseException as another:  # recursion limit, memory, an exception that breaks the formatting
        text = f"{type(error).__name__}: {plain_str(error)}\n(its traceback is missing: {type(another).__name__})\n"
    complain(text)
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


def complain(text: str) -> None:
    flush_streams()
    try:
        write_all(2, encode(text))
    except OSError:
        pass


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


def prepare(preloads: list[str]) -> None:
    """Everything that can be done before the first cell comes."""
    os.set_inheritable(CHANNEL, False)
    sys.argv = [""]
    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.meta_path.insert(0, Finder())
    if "linecache" in modules:
        complete_linecache(modules["linecache"])
    namespace["__builtins__"] = builtins
    modules["__main__"] = main
    sys.stdout, sys.stderr = stdout, stderr
    public.update(shown_names)
    public.update(input=ask_nobody, exit=leave, quit=leave, __ringfence__=Magics())
    _signal.signal(SIGINT, on_interrupt)
    os.register_at_fork(after_in_child=become_child)
    sys.path = [entry for entry in sys.path if entry]
    for name in preloads:
        try:
            __import__(name)
        except Exception:  # the cell that imports it will hear of it
            pass
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
    _signal.signal(SIGINT, on_interrupt)
    namespace.pop("__warningregistry__", None)  # another cell has other lines
    if "__builtins__" not in namespace:
        namespace["__builtins__"] = builtins
    modules["__main__"] = main
    repair_descriptors()
    if is_replaced("stdout", stdout) or is_replaced("stderr", stderr) or stdout.closed or stderr.closed:
        repair_streams()


call = b""
"""What the caller gave the cell to be known by: an end without it answers nobody."""


def receive(buffered: bytes) -> tuple[str, bytes]:
    """The source of the next cell, and what was read beyond it."""
    global call
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
        prepare(sys.argv[1:])
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
        complain("the context failed\n")
    finally:
        os_exit(1)


if __name__ == "__main__":
    own_path = trusted_path()
    spare_stdout, spare_stderr = os.dup(1), os.dup(2)
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
