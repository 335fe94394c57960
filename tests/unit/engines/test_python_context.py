"""The interpreter inside a sandbox, spoken to as the engine does, without a sandbox around it."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ringfence.engines.drivers.python import joined
from ringfence.engines.frames import parts, read_shown

# As the engine's, except that it has to bring the socket to descriptor 9 by itself. It enters the workspace late: from
# 3.13 `-c` itself imports linecache, from wherever it stands.
BOOTSTRAP = """
import os, sys
channel, source = int(sys.argv.pop(1)), int(sys.argv.pop(1))
os.dup2(channel, 9)
os.chdir(sys.argv.pop(1))
with open(source) as file:
    text = file.read()
os.close(channel)
exec(compile(text, "<driver>", "exec"), {"__name__": "__main__"})
"""
PATIENCE_SECONDS = 30
PNG = b"\x89PNG"


def read_body(kind: str, body: bytes) -> Any:
    """The parts of a body; what is shown is told apart by whether it is text."""
    found = parts(body)
    if kind == "error":
        return {name: data.decode() for name, data in found.items()}
    shown: dict[str, dict[str, str]] = {"text": {}, "base64": {}}
    for name, data in found.items():
        form = read_shown(body, is_value=kind == "result").get(name)
        if isinstance(form, str):
            shown["text"][name] = form
        else:
            shown["base64"][name] = base64.b64encode(data).decode()
    return shown


@dataclass
class Told:
    """All that one cell said."""

    code: int
    frames: list[tuple[str, Any]]
    out: str
    err: str

    @property
    def result(self) -> dict[str, str] | None:
        return next((body["text"] for kind, body in self.frames if kind == "result"), None)

    @property
    def text(self) -> str | None:
        return None if self.result is None else self.result["text/plain"]

    @property
    def shown(self) -> list[dict[str, dict[str, str]]]:
        return [body for kind, body in self.frames if kind == "display"]

    @property
    def error(self) -> dict[str, str]:
        return next(body for kind, body in self.frames if kind == "error")

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.frames]


@dataclass
class Context:
    process: subprocess.Popen[bytes]
    channel: socket.socket
    logs: dict[str, Path]
    version: str = ""
    buffered: bytes = b""
    read_so_far: dict[str, int] = field(default_factory=lambda: {"out": 0, "err": 0})

    def run(self, source: str) -> Told:
        self.start(source)
        return self.finish()

    def start(self, source: str) -> None:
        body = source.encode()
        self.channel.sendall(b"run %d 0f\n%b" % (len(body), body))

    def finish(self) -> Told:
        frames = []
        while True:
            kind, body = self.frame()
            if kind == "done":
                return Told(int(body.removeprefix(b"0f ")), frames, self.log("out"), self.log("err"))
            frames.append((kind, read_body(kind, body)))

    def frame(self) -> tuple[str, bytes]:
        while b"\n" not in self.buffered:
            self.more()
        header, _, self.buffered = self.buffered.partition(b"\n")
        kind, length = header.split()
        while len(self.buffered) < int(length):
            self.more()
        body, self.buffered = self.buffered[: int(length)], self.buffered[int(length) :]
        return kind.decode(), body

    def more(self) -> None:
        chunk = self.channel.recv(1 << 20)
        assert chunk, f"the driver is gone: {self.log('err')}"
        self.buffered += chunk

    def log(self, name: str) -> str:
        text = self.logs[name].read_bytes()
        new, self.read_so_far[name] = text[self.read_so_far[name] :], len(text)
        return new.decode()

    def wait_until_it_prints(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.logs["out"].read_text():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


Start = Callable[..., Context]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    contexts: list[Context] = []
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def begin(*preloads: str, env: dict[str, str] | None = None) -> Context:
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_SECONDS)
        logs = {name: tmp_path / f"{name}-{len(contexts)}" for name in ("out", "err")}
        (tmp_path / "driver.py").write_text(joined())
        with (
            theirs,
            open(tmp_path / "driver.py") as source,
            open(logs["out"], "ab") as out,
            open(logs["err"], "ab") as err,
        ):
            descriptors = (theirs.fileno(), source.fileno())
            process = subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP, *map(str, descriptors), workspace, *preloads],
                pass_fds=descriptors,
                cwd="/",
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        context = Context(process, ours, logs)
        contexts.append(context)
        kind, version = context.frame()
        assert kind == "ready"
        context.version = version.decode()
        return context

    yield begin
    for context in contexts:
        context.channel.close()
        try:
            context.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            context.process.kill()
            context.process.wait()
            raise


@pytest.fixture
def context(start: Start) -> Context:
    return start()


# --- protocol ---------------------------------------------------------------------------------------------------------


def test_ready_names_the_version(context: Context) -> None:
    assert context.version == ".".join(map(str, sys.version_info[:3]))


def test_the_end_of_the_stream_ends_the_driver_well(context: Context) -> None:
    context.channel.shutdown(socket.SHUT_WR)

    assert context.process.wait(PATIENCE_SECONDS) == 0


def test_the_end_of_the_stream_ends_the_driver_though_threads_of_the_code_live(context: Context) -> None:
    context.run("import threading, time; threading.Thread(target=time.sleep, args=(1000,)).start()")
    context.channel.shutdown(socket.SHUT_WR)

    assert context.process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("header", [b"stop 0\n", b"run x\n", b"\n"])
def test_an_unknown_header_ends_the_driver_badly(context: Context, header: bytes) -> None:
    context.channel.sendall(header)

    assert context.process.wait(PATIENCE_SECONDS) == 1


def test_cells_that_arrive_together_or_in_pieces_are_all_run(context: Context) -> None:
    context.channel.sendall(b"run 3\n1+1run 3\n2+2")
    assert [context.finish().text, context.finish().text] == ["2", "4"]

    for byte in b"run 3\n3+3":
        context.channel.sendall(bytes([byte]))
        time.sleep(0.002)
    assert context.finish().text == "6"


def test_a_source_larger_than_any_buffer_arrives(context: Context) -> None:
    assert context.run("x = '" + "ä" * 500_000 + "'\nlen(x)").text == "500000"


def test_little_is_loaded_before_the_first_cell(context: Context) -> None:
    question = (
        "import sys; print([m for m in ('json', 're', 'ast', 'traceback', 'socket', 'enum') if m in sys.modules])"
    )
    told = context.run(question)

    # A distribution's own site hooks may load more; they are asked without us.
    bare = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    assert told.out == bare.stdout


def test_modules_are_preloaded_and_missing_ones_do_not_matter(start: Start) -> None:
    context = start("no_such_module", "fractions")

    assert context.run("import sys; 'fractions' in sys.modules").text == "True"
    assert context.run("fractions").error["type"] == "NameError"


# --- state and values -------------------------------------------------------------------------------------------------


def test_variables_live_on_between_cells(context: Context) -> None:
    assert context.run("x = 41").kinds == []
    assert context.run("def f():\n    return x + 1").kinds == []
    assert context.run("f()").text == "42"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1+1", "2"),
        ("1+1\n", "2"),
        ("x = 2\nx * 3", "6"),
        ("import os; 7", "7"),
        ("'a\\n\"b'", "'a\\n\"b'"),
        ("'\\udc80 ä'", "'\\udc80 ä'"),
        ("1 # ;", "1"),
        ("'a;'", "'a;'"),
        ("x = 1\n(x # ;\n)", "1"),
        ("None", None),
        ("x = 1", None),
        ("", None),
        ("# nothing", None),
        ("1+1;", None),
        ("x = 'ä'; x;  # hidden", None),
        ("(1 +\n 1) ;", None),
        ("if True:\n    5", None),
    ],
)
def test_the_value_of_the_last_expression_is_the_result(context: Context, source: str, text: str | None) -> None:
    told = context.run(source)

    assert (told.text, told.code, told.err) == (text, 0, "")


def test_underscore_is_the_last_value(context: Context) -> None:
    context.run("20 + 1")
    context.run("None")

    assert context.run("_ * 2").text == "42"


def test_output_is_there_when_the_cell_is_done(context: Context) -> None:
    told = context.run("import sys\nprint('out', end='')\nprint('err', end='', file=sys.stderr)\nprint('ä\\udc80')")

    assert (told.out, told.err) == ("outä\\udc80\n", "err")


def test_lines_can_be_watched_while_the_cell_runs(context: Context) -> None:
    context.start("print('first')\nwhile True: pass")
    context.wait_until_it_prints("first")
    context.interrupt()

    assert context.finish().code == 130


def test_the_namespace_is_that_of_a_script(context: Context) -> None:
    told = context.run(
        "import sys, pickle, dataclasses, typing\n"
        "@dataclasses.dataclass\nclass Point:\n    x: 'int'\n"
        "assert sys.modules['__main__'].Point is Point and Point.__module__ == '__main__'\n"
        "assert pickle.loads(pickle.dumps(Point(3))) == Point(3)\n"
        "assert typing.get_type_hints(Point) == {'x': int}\n"
        "(__name__, '__file__' in globals(), sys.argv, sys.path[0])"
    )

    assert told.text == "('__main__', False, [''], '')"


def test_the_driver_does_not_show_in_the_namespace(context: Context) -> None:
    assert context.run("sorted(n for n in globals() if not n.startswith('__'))").text == "[]"


def test_future_statements_hold_for_later_cells(context: Context) -> None:
    assert context.run("def f(x: nonsense): pass").error["type"] == "NameError"
    context.run("from __future__ import annotations")

    assert context.run("def f(x: nonsense): pass\nf.__annotations__").text == "{'x': 'nonsense'}"


def test_await_works_at_the_top_and_the_loop_lives_on(context: Context) -> None:
    context.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5")
    assert context.run("task = asyncio.ensure_future(f())\nawait asyncio.sleep(0)").code == 0
    assert context.run("await task").text == "5"
    assert context.run("asyncio.run(asyncio.sleep(0))").code == 0
    assert context.run("x = await f()\nx + 1").text == "6"


def test_an_error_after_await_shows_no_event_loop(context: Context) -> None:
    told = context.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1/0\nawait f()")

    assert told.error["traceback"].count("File ") == 2
    assert "asyncio/" not in told.error["traceback"]


def test_multiprocessing_finds_functions_of_cells(context: Context) -> None:
    told = context.run(
        "import multiprocessing\ndef double(x): return 2 * x\n"
        "with multiprocessing.Pool(2) as pool: print(pool.map(double, [1, 2]))"
    )

    assert (told.out, told.code) == ("[2, 4]\n", 0)


def test_warnings_show_in_every_cell(context: Context) -> None:
    for _ in range(2):
        assert "DeprecationWarning: old" in context.run("import warnings; warnings.warn('old', DeprecationWarning)").err


# --- display ----------------------------------------------------------------------------------------------------------


def test_display_shows_at_once_and_is_no_result(context: Context) -> None:
    told = context.run("display(1, HTML('<b>x</b>'))\n2")

    assert told.kinds == ["display", "display", "result"]
    assert told.shown[1]["text"] == {"text/html": "<b>x</b>", "text/plain": "<HTML object>"}


@pytest.mark.parametrize(
    ("source", "mime", "data"),
    [
        ("Markdown('# a')", "text/markdown", "# a"),
        ("Latex('$x$')", "text/latex", "$x$"),
        ("JSON({'a': [1]})", "application/json", '{"a": [1]}'),
        ("SVG('<svg/>')", "image/svg+xml", "<svg/>"),
    ],
)
def test_forms_that_are_text(context: Context, source: str, mime: str, data: str) -> None:
    assert (context.run(source).result or {})[mime] == data


def test_images_are_bytes(context: Context) -> None:
    told = context.run("Image(b'\\x89PNG1')")

    assert base64.b64decode(told.frames[0][1]["base64"]["image/png"]) == b"\x89PNG1"


def test_all_methods_of_the_display_protocol_are_asked(context: Context) -> None:
    names = ("html", "markdown", "latex", "svg", "json")
    methods = "".join(f"    def _repr_{name}_(self): return {name!r}\n" for name in names)
    told = context.run(
        f"class All:\n{methods}    def _repr_png_(self): return b'png'\n    def _repr_pdf_(self): return b'pdf'\nAll()"
    )

    assert told.result is not None
    assert set(told.result) == {
        "text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "application/json"
    }  # fmt: skip
    assert told.frames[0][1]["base64"] == {
        "image/png": base64.b64encode(b"png").decode(),
        "application/pdf": base64.b64encode(b"pdf").decode(),
    }


def test_a_bundle_says_it_all_at_once(context: Context) -> None:
    told = context.run(
        "class B:\n"
        "    def _repr_mimebundle_(self, include=None, exclude=None):\n"
        "        return {'text/plain': 'p', 'application/x+json': {'a': 1}, 'image/gif': b'g'}, {}\n"
        "B()"
    )

    assert told.frames[0][1] == {
        "text": {"text/plain": "p", "application/x+json": '{"a": 1}'},
        "base64": {"image/gif": base64.b64encode(b"g").decode()},
    }


def test_a_faulty_form_is_left_out(context: Context) -> None:
    told = context.run(
        "class F:\n"
        "    def _repr_html_(self): raise ValueError\n"
        "    def _repr_mimebundle_(self, **_): return 5\n"
        "    def _repr_latex_(self): return '$'\n"
        "    def __repr__(self): raise KeyError('k')\n"
        "F()"
    )

    assert told.code == 0
    assert told.result == {"text/latex": "$", "text/plain": "<F object whose repr() raised KeyError: 'k'>"}


def test_a_class_or_a_mock_is_only_plain(context: Context) -> None:
    context.run("from unittest.mock import MagicMock\nclass H:\n    def _repr_html_(self): return 'h'")

    assert list(context.run("H").result or {}) == ["text/plain"]
    assert list(context.run("MagicMock()").result or {}) == ["text/plain"]


def test_large_containers_are_printed_prettily(context: Context) -> None:
    told = context.run("{'key%d' % i: list(range(i)) for i in range(20)}")

    assert told.text is not None and "\n" in told.text
    assert eval(told.text) == {f"key{i}": list(range(i)) for i in range(20)}


@pytest.mark.parametrize(
    "source", ["'x' * 10**7", "list(range(10**6))", "{i: i for i in range(10**6)}", "[['x' * 10**6]]"]
)
def test_huge_values_are_cut(context: Context, source: str) -> None:
    text = context.run(source).text

    assert text is not None
    assert 100_000 < len(text) < 100_100 and text.endswith("(cut after 100000 characters)")


def test_a_frame_that_is_too_large_is_a_note(context: Context) -> None:
    told = context.run("HTML('x' * (17 << 20))")

    assert told.text is not None and told.text.startswith("(not shown: text/html")
    assert list(told.result or {}) == ["text/plain"]


def test_variables_may_shadow_display(context: Context) -> None:
    assert context.run("HTML = 5\nHTML").text == "5"
    assert context.run("del HTML\nHTML('x')").result == {"text/html": "x", "text/plain": "<HTML object>"}


def test_a_display_can_be_updated(context: Context) -> None:
    told = context.run("handle = display(1, display_id=True)\nhandle.update(2)")

    assert [each["text"]["text/plain"] for each in told.shown] == ["1", "2"]


def test_threads_may_display(context: Context) -> None:
    told = context.run(
        "import threading\n"
        "threads = [threading.Thread(target=lambda: [display('x' * 50000) for _ in range(20)]) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads];"
    )

    assert len(told.shown) == 80


def test_ipython_is_stood_in_for_when_it_is_missing(context: Context) -> None:
    told = context.run(
        "from IPython.display import display, HTML, clear_output\nfrom IPython import get_ipython\ndisplay(HTML('x'))"
    )

    assert (told.code, told.shown[0]["text"]["text/html"]) == (0, "x")
    assert context.run("get_ipython()").kinds == []
    assert context.run("import IPython.terminal").error["type"] == "ModuleNotFoundError"


def test_an_installed_ipython_displays_through_us(start: Start, tmp_path: Path) -> None:
    core = tmp_path / "packages/IPython/core"
    core.mkdir(parents=True)
    (core / "__init__.py").touch()
    (core / "display_functions.py").write_text("def display(*a): print(*a)\ndef publish_display_data(d): print(d)")
    (core.parent / "__init__.py").write_text("installed = True")
    (core.parent / "display.py").write_text("from IPython.core.display_functions import *")
    context = start(env={"PYTHONPATH": str(tmp_path / "packages")})

    told = context.run("import IPython\nfrom IPython.display import display\nassert IPython.installed\ndisplay(3)")

    assert (told.code, told.out, told.shown) == (0, "", [{"text": {"text/plain": "3"}, "base64": {}}])


# --- figures and frames -----------------------------------------------------------------------------------------------


def test_figures_show_at_the_end_of_the_cell_and_only_once(context: Context) -> None:
    told = context.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    again = context.run("1")

    assert base64.b64decode(told.shown[0]["base64"]["image/png"]).startswith(PNG)
    assert told.shown[0]["text"]["text/plain"].startswith("<Figure")
    assert (told.err, again.shown) == ("", [])


def test_figures_show_where_the_code_shows_them(context: Context) -> None:
    told = context.run(
        "import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()\ndisplay('between')\n"
        "plt.plot([2])\nplt.figure(); plt.plot([3])\n1/0"
    )

    assert ["image/png" in each["base64"] for each in told.shown] == [True, False, True, True]
    assert (told.code, told.error["type"]) == (1, "ZeroDivisionError")
    assert "non-interactive" not in told.err


def test_a_figure_as_result_shows_once(context: Context) -> None:
    told = context.run("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nfig")

    assert told.kinds == ["result"]
    assert "image/png" in told.frames[0][1]["base64"]


def test_a_figure_that_cannot_be_drawn_says_why(context: Context) -> None:
    told = context.run("import matplotlib.pyplot as plt\nplt.title(r'$\\nonsense{$');")

    assert "could not be drawn: ValueError" in told.shown[0]["text"]["text/plain"]


def test_preloaded_pyplot_shows_figures_too(start: Start) -> None:
    context = start("matplotlib.pyplot")

    assert context.run("import matplotlib.pyplot as plt\nplt.plot([1]); plt.show()").shown[0]["base64"]


def test_matplotlib_is_not_loaded_unasked(context: Context) -> None:
    context.run("1/0")

    assert (
        context.run("import sys, os\n('matplotlib' in sys.modules, os.environ['MPLBACKEND'])").text == "(False, 'Agg')"
    )


def test_data_frames_are_tables_and_text(context: Context) -> None:
    told = context.run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})\nframe")

    assert told.result is not None
    assert "<table" in told.result["text/html"] and told.result["text/plain"].startswith("   a\n0  1")
    assert (context.run("frame.a").text or "").endswith("dtype: int64")


def test_pictures_are_shown_as_pictures(context: Context) -> None:
    told = context.run("from PIL import Image as I\nI.new('RGB', (2, 2))")

    assert list(told.frames[0][1]["base64"]) == ["image/png"]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_has_the_lines_of_the_user_and_none_of_ours(context: Context) -> None:
    context.run("def f(x):\n    return 1 / x  # earlier cell")
    told = context.run("y = 0\nf(y)")

    assert told.code == 1 and told.kinds == ["error"]
    assert (told.error["type"], told.error["value"]) == ("ZeroDivisionError", "division by zero")
    assert told.error["traceback"] == told.err
    lines = [line for line in told.err.splitlines() if line.strip(" ~^") != ""]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "<cell 2>", line 2, in <module>',
        "    f(y)",
        '  File "<cell 1>", line 2, in f',
        "    return 1 / x  # earlier cell",
        "ZeroDivisionError: division by zero",
    ]
    assert context.run("y").text == "0"


def test_the_code_sees_its_own_lines_in_tracebacks_too(context: Context) -> None:
    told = context.run("import traceback\ntry:\n    1/0  # here\nexcept Exception:\n    traceback.print_exc()")

    assert "1/0  # here" in told.err


def test_causes_and_notes_are_told(context: Context) -> None:
    told = context.run(
        "try:\n    {}['k']\nexcept KeyError as e:\n    x = ValueError('v')\n"
        "    x.add_note('a note')\n    raise x from e"
    )

    for part in ("KeyError: 'k'", "direct cause", "ValueError: v\na note\n"):
        assert part in told.error["traceback"]
    assert "<driver>" not in told.err


def test_a_syntax_error_points_at_the_place(context: Context) -> None:
    told = context.run("x = 1\ny = = 2")

    assert told.error["type"] == "SyntaxError"
    assert told.err == '  File "<cell 1>", line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax\n'


@pytest.mark.parametrize("source", ["x = '\0'", "(" * 1000, "x" + ".x" * 100_000, "yield 1", "def f(:\n  !ls"])
def test_source_that_cannot_be_compiled_is_an_error(context: Context, source: str) -> None:
    assert context.run(source).code == 1
    assert context.run("1+1").text == "2"


def test_endless_recursion_and_no_memory_are_errors(context: Context) -> None:
    told = context.run("def f(): f()\nf()")
    assert told.error["type"] == "RecursionError" and len(told.err) < 2000

    assert context.run("bytearray(1 << 60)").error["type"] == "MemoryError"
    assert context.run("1+1").text == "2"


def test_an_exception_that_cannot_be_told_is_still_an_error(context: Context) -> None:
    told = context.run("class E(Exception):\n    def __str__(self): raise ValueError\nraise E")

    assert (told.error["type"], told.error["value"]) == ("E", "<exception str() failed>")


@pytest.mark.parametrize(
    ("source", "code", "err"),
    [
        ("import sys; sys.exit()", 0, ""),
        ("exit()", 0, ""),
        ("quit(3)", 3, ""),
        ("raise SystemExit(257)", 1, ""),
        ("import sys; sys.exit('went wrong')", 1, "went wrong\n"),
    ],
)
def test_exit_ends_the_cell_and_keeps_the_state(context: Context, source: str, code: int, err: str) -> None:
    context.run("x = 5")
    told = context.run(source)

    assert (told.code, told.err, told.kinds) == (code, err, [])
    assert context.run("x").text == "5"


def test_input_says_that_nobody_is_there(context: Context) -> None:
    told = context.run("input('name? ')")

    assert (told.out, told.error["type"]) == ("name? ", "EOFError")
    assert "standard input is empty" in told.error["value"]


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "print('go')\nwhile True: pass",
        "import time\nprint('go')\ntime.sleep(1000)",
        "import asyncio\nprint('go')\nawait asyncio.sleep(1000)",
        "class R:\n    def __repr__(self):\n        print('go')\n        while True: pass\nR()",
        "!echo go; sleep 1000",
        "!sleep 1000 | (echo go >&2; echo go; sleep 1000 >&2)",
        "print('go')\nx = !sleep 1000",
    ],
)
def test_an_interrupt_ends_the_cell_and_keeps_the_state(context: Context, source: str) -> None:
    context.run("x = 5")
    context.start(source)
    context.wait_until_it_prints("go")
    time.sleep(0.1)
    context.interrupt()
    told = context.finish()

    assert (told.code, told.error["type"]) == (130, "KeyboardInterrupt")
    assert "<driver>" not in told.err and "base_events" not in told.err
    assert context.run("x").text == "5"


def test_an_interrupt_between_cells_is_ignored(context: Context) -> None:
    for _ in range(3):
        context.interrupt()
    time.sleep(0.05)

    assert context.run("1+1").text == "2"


def test_interrupts_at_any_moment_leave_the_stream_whole(context: Context) -> None:
    for round_ in range(150):
        context.start("display('x' * 30000)\n1")
        time.sleep(0.0002 * (round_ % 8))
        context.interrupt()
        assert context.finish().code in (0, 130)

    assert context.run("1+1").text == "2"


def test_the_code_cannot_turn_interrupts_off_for_the_next_cell(context: Context) -> None:
    context.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    context.interrupt()
    context.start("print('go')\nwhile True: pass")
    context.wait_until_it_prints("go")
    context.interrupt()

    assert context.finish().code == 130


def test_children_do_not_inherit_an_ignored_interrupt(context: Context) -> None:
    told = context.run("!grep SigIgn /proc/self/status")

    assert int(told.out.split()[1], 16) & 1 << (signal.SIGINT - 1) == 0


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_ends_at_the_end_of_the_cell_and_says_nothing_for_us(context: Context) -> None:
    told = context.run(
        "import os\npid = os.fork()\n"
        "if pid: status = os.waitpid(pid, 0)[1]\n"
        "else: print('child'); display(1)\n"
        "pid and os.WEXITSTATUS(status)"
    )

    assert (told.kinds, told.text) == (["result"], "0")
    assert told.out.startswith("child\n1\n")


@pytest.mark.parametrize(("ending", "code"), [("raise SystemExit(7)", 7), ("1/0", 1)])
def test_a_forked_child_has_its_own_exit_code(context: Context, ending: str, code: int) -> None:
    told = context.run(
        f"import os\npid = os.fork()\nif not pid: {ending}\nprint(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))"
    )

    assert (told.code, told.out) == (0, f"{code}\n")
    assert told.kinds == []


def test_programs_of_the_code_do_not_get_the_channel(context: Context) -> None:
    assert context.run("x = !ls -l /proc/self/fd\n[l for l in x if 'socket:' in l]").text == "[]"


def test_a_living_child_does_not_keep_the_stream_open(context: Context) -> None:
    told = context.run("import os, time\npid = os.fork()\nif not pid: time.sleep(1000)\npid")
    context.process.kill()
    context.process.wait()
    try:
        assert context.channel.recv(1) == b""
    finally:
        os.kill(int(told.text or ""), signal.SIGKILL)


# --- code that breaks things ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.stdout.close()",
        "import sys; sys.stdout = None",
        "import sys; del sys.stdout",
        "import sys; sys.stdout = sys.stderr = 5",
        "import os; os.close(1); os.close(2)",
        "import os; os.set_blocking(1, False)",
        "import os\nos.write = os.read = os._exit = os.dup2 = None",
        "import builtins\nfor n in 'len isinstance repr eval compile type getattr open'.split(): delattr(builtins, n)",
        "del __builtins__",
        "import sys; sys.setrecursionlimit(60)",
        "import sys; sys.path.clear(); sys.meta_path.clear()",
        "import linecache; linecache.clearcache(); linecache.cache = None",
        "import gc; gc.disable()",
    ],
)  # fmt: skip
def test_the_next_cells_work_whatever_this_one_breaks(context: Context, source: str) -> None:
    context.run(source)

    assert context.run("print('still here')").out == "still here\n"
    assert context.run("1+1").text == "2"
    told = context.run("1/0")
    assert (told.code, told.error["type"]) == (1, "ZeroDivisionError")
    assert told.err


def test_a_stdout_of_the_code_stays_and_is_flushed(context: Context) -> None:
    context.run("import sys, io\nsys.stdout = mine = io.StringIO()\nprint('kept')")

    assert context.run("mine.getvalue()").text == "'kept\\n'"


def test_builtins_that_the_code_replaces_are_replaced_for_the_code(context: Context) -> None:
    context.run("import builtins\nbuiltins.len = lambda _: 77")

    assert context.run("len([])").text == "77"


def test_a_closed_channel_ends_the_driver(context: Context) -> None:
    context.start("import os; os.close(9)")

    assert context.process.wait(PATIENCE_SECONDS) == 1


HOSTILE = (
    "json",
    "traceback",
    "linecache",
    "re",
    "pprint",
    "asyncio",
    "subprocess",
    "shlex",
    "tokenize",
    "textwrap",
)


@pytest.mark.parametrize("is_imported", [False, True])
def test_files_of_the_workspace_do_not_stand_in_for_the_library(
    start: Start, tmp_path: Path, is_imported: bool
) -> None:
    for name in HOSTILE:
        (tmp_path / "workspace" / f"{name}.py").write_text("hostile = True\n")
    context = start()
    if is_imported:
        context.run(
            f"import sys\nfor name in {HOSTILE}: sys.modules.pop(name, None)"
        )  # 3.13 has linecache from the start
        told = context.run(f"import {', '.join(HOSTILE)}\n[{', '.join(name + '.hostile' for name in HOSTILE)}]")
        assert told.text is not None and told.text.count("True") == len(HOSTILE)

    told = context.run("1/0")
    assert told.error["type"] == "ZeroDivisionError" and "1/0" in told.err and "missing" not in told.err
    assert (context.run("JSON([1])").result or {})["application/json"] == "[1]"
    assert context.run("list(range(100))").code == 0
    assert context.run("!echo hello").out == "hello\n"
    if is_imported:
        assert context.run("json.hostile and __import__('json').hostile").text == "True"


def test_the_workspace_can_be_imported_from(start: Start, tmp_path: Path) -> None:
    (tmp_path / "workspace" / "mine.py").write_text("x = 8\n")

    assert start().run("import mine; mine.x").text == "8"


# --- lines that notebooks know ----------------------------------------------------------------------------------------


def test_shell_lines_run_and_stream(context: Context) -> None:
    told = context.run("name = 'w d'\nprint('a')\n!echo \"{name}\" $name; echo oops >&2; exit 3\nprint('b')")

    assert (told.out, told.err, told.code) == ("a\nw d w d\nb\n", "oops\n", 0)
    assert context.run("_exit_code").text == "3"


def test_what_has_no_value_is_left_to_the_shell(context: Context) -> None:
    told = context.run("!echo x y | awk '{print $2}'; HERE=1; echo ${HERE} $HERE $(echo z)")

    assert told.out == "y\n1 1 z\n"


def test_shell_output_can_be_assigned(context: Context) -> None:
    assert context.run("files = !printf 'a\\nb\\n'\nfiles").text == "['a', 'b']"


def test_shell_lines_may_stand_in_blocks_and_be_continued(context: Context) -> None:
    told = context.run("for i in range(2):\n    !echo {i} \\\n       more\nprint(1/0)")

    assert told.out == "0 more\n1 more\n"
    assert "line 4" in told.err and "print(1/0)" in told.err


@pytest.mark.parametrize(
    "source",
    [
        's = """\n!ls\n%cd x\nname?\n"""\ns',
        's = """\n!ls\n%cd x\nname?\n"""\n%matplotlib inline\ns',
        "s = '''\n!ls\n%cd x\nname?\n'''  # it's\n!true\ns",
    ],
)
def test_lines_inside_strings_stay_as_they_are(context: Context, source: str) -> None:
    assert context.run(source).text == "'\\n!ls\\n%cd x\\nname?\\n'"


def test_brackets_and_continued_lines_stay_as_they_are(context: Context) -> None:
    assert context.run("!true\nx = (7\n% 4)\ny = 7 \\\n% 5\n(x, y)").text == "(3, 2)"


def test_cd_and_env_change_the_process(context: Context) -> None:
    context.run("%cd /")
    context.run("%env A_NAME=a value")

    assert context.run("import os; (os.getcwd(), os.environ['A_NAME'])").text == "('/', 'a value')"
    assert context.run("%pwd").text == "'/'"


def test_time_tells_the_time_and_keeps_the_value(context: Context) -> None:
    told = context.run("%time 1 + 1")
    assert told.text == "2" and "Wall time" in told.out

    told = context.run("%%time\nx = 5\nx + 1")
    assert told.text == "6" and "Wall time" in told.out

    assert "per loop" in context.run("%timeit -n 10 -r 2 x + 1").out


def test_cell_magics_run_shells_and_write_files(start: Start, tmp_path: Path) -> None:
    context = start()
    assert context.run("%%bash\nfor i in 1 2; do\n  echo $i\ndone").out == "1\n2\n"
    assert context.run("%%sh\nexit 4").error["type"] == "CalledProcessError"
    assert context.run("%%html\n<p>").shown[0]["text"]["text/html"] == "<p>"

    assert context.run("%%writefile a file.txt\nx").error["type"] == "NotAvailable"
    assert context.run("%%writefile file.txt\n!x\n  y").out == "Writing file.txt\n"
    assert (tmp_path / "workspace/file.txt").read_text() == "!x\n  y\n"


@pytest.mark.parametrize(
    "source", ["%pip install x", "!pip install x", "!python3 -m pip install x", "!uv pip install x"]
)
def test_installing_is_refused_with_a_way_out(context: Context, source: str) -> None:
    told = context.run(source)

    assert told.error["type"] == "NotAvailable"
    assert "no network" in told.error["value"] and "outside" in told.error["value"]


@pytest.mark.parametrize("source", ["%load_ext autoreload", "%%javascript\nx"])
def test_other_magics_are_refused_with_the_list_of_those_that_exist(context: Context, source: str) -> None:
    told = context.run(source)

    assert told.error["type"] == "NotAvailable"
    assert "%timeit" in told.error["value"] and "%%bash" in told.error["value"]


def test_a_question_mark_explains(context: Context) -> None:
    context.run("def f(x, y=2):\n    'Adds.'")

    assert context.run("f?").out == context.run("?f").out == "f(x, y=2)\nAdds.\n"
    assert "not found" in context.run("nothing?").out


def test_a_mistake_beside_a_magic_is_reported_where_it_is(context: Context) -> None:
    told = context.run("!true\nx = = 1")

    assert told.error["type"] == "SyntaxError" and "line 2" in told.err
