"""CPython as a guest: runs scripts, or cells that keep their globals. Part of the snapshot that is built of it.

What stands at the top level runs once, when the guest is built, in a world that is gone at run time: the files of the
standard library exist only then, and so do the environment, the directory and the state of `random`. So the library is
kept as code objects (`_Library`), much of it is imported ahead, and what belongs to a run is taken anew at its begin.
"""

import ast
import builtins
import contextlib
import gc
import importlib.abc
import importlib.util
import io
import json
import linecache
import marshal
import os
import random
import runpy
import sys
import traceback
import types

import wit_world
from wit_world.imports import environment

AHEAD = """
abc argparse array base64 bisect calendar cmath collections collections.abc configparser contextlib copy csv
dataclasses datetime decimal difflib enum errno fnmatch fractions functools glob gzip hashlib heapq hmac html
html.parser io itertools json keyword linecache locale math numbers operator os.path pathlib pickle platform pprint
queue random re reprlib secrets shlex shutil signal sqlite3 statistics string struct tarfile tempfile textwrap
threading time timeit tokenize traceback types typing unicodedata unittest urllib.parse uuid warnings weakref
xml.etree.ElementTree zipfile zlib zoneinfo
"""
HOME = "/workspace"


class _Library(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """The standard library, from memory."""

    def __init__(self) -> None:
        self.codes: dict[str, tuple[bytes, bool]] = {}

    def collect(self, top: str) -> None:
        for directory, names, files in os.walk(top):
            names[:] = [name for name in names if name not in ("__pycache__", "test", "tests", "idlelib", "ensurepip")]
            for file in files:
                if not file.endswith(".py"):
                    continue
                path = os.path.join(directory, file)
                name = os.path.relpath(path, top)[:-3].replace("/", ".")
                is_package = name.endswith("__init__")
                name = name.removesuffix(".__init__")
                try:
                    with open(path, "rb") as source:
                        code = compile(source.read(), f"<python>/{name.replace('.', '/')}.py", "exec", optimize=1)
                except (SyntaxError, ValueError, OSError):
                    continue
                self.codes[name] = (marshal.dumps(code), is_package)

    def find_spec(self, name, path=None, target=None):
        if name not in self.codes:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=self.codes[name][1], origin="<python>")

    def get_code(self, name):
        return marshal.loads(self.codes[name][0])

    def is_package(self, name):
        return self.codes[name][1]

    def get_source(self, name):
        return None


library = _Library()
for place in list(sys.path):
    if os.path.isfile(os.path.join(place, "os.py")):
        library.collect(place)
for ahead in AHEAD.split():
    with contextlib.suppress(ImportError):
        importlib.import_module(ahead)
sys.meta_path.append(library)
sys.path[:] = []
sys.path_importer_cache.clear()

_main = types.ModuleType("__main__")
_main.__dict__["__builtins__"] = builtins
_cells = 0


class _Whole(io.FileIO):
    """A stream that takes all that it is given: a pipe takes as much as fits, and the layers above do not look."""

    def write(self, data):
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            rest = rest[super().write(rest) :]
        return size


def use_streams(*, at_once: bool) -> None:
    """Standard streams as Python has them on pipes; or, for cells, such that each word is heard when it is said."""
    out = _Whole(1, "wb", closefd=False)
    said = out if at_once else io.BufferedWriter(out, 65536)
    sys.stdout = io.TextIOWrapper(said, "utf-8", "surrogateescape", write_through=at_once)
    err = _Whole(2, "wb", closefd=False)
    sys.stderr = io.TextIOWrapper(err, "utf-8", "backslashreplace", write_through=True)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), "utf-8", "surrogateescape")
    sys.__stdout__, sys.__stderr__, sys.__stdin__ = sys.stdout, sys.stderr, sys.stdin


def begin(arguments: "list[str]") -> None:
    """Take over what belongs to this run."""
    random.seed()
    os.environ.clear()
    for name, value in environment.get_environment():
        os.environ[name] = value
    sys.argv = arguments
    linecache.clearcache()
    try:
        os.chdir(os.environ.get("PWD") or HOME)
    except OSError:
        os.chdir("/")
    sys.path[:] = [""]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


def run(arguments: "list[str]") -> None:
    """As `python3 ARGUMENTS`."""
    words = arguments[1:]
    while words and words[0] in ("-I", "-S", "-E", "-s", "-B", "-u", "-q", "-OO", "-O"):
        words.pop(0)
    if words[:1] in (["-V"], ["--version"]):
        print("Python " + sys.version.split()[0])
        return
    if words[:1] == ["-c"]:
        sys.argv = ["-c", *words[2:]]
        code = compile(words[1] if len(words) > 1 else "", "<string>", "exec")
    elif words[:1] == ["-m"] and len(words) > 1:
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    elif not words or words[0] == "-":
        sys.argv = ["-", *words[1:]]
        code = compile(sys.stdin.read(), "<stdin>", "exec")
    elif words[0].startswith("-"):
        print(f"python3: the option {words[0]} is not there in this guest", file=sys.stderr)
        sys.exit(2)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(words[0]) or ""
        try:
            with open(words[0], "rb") as file:
                text = file.read()
        except OSError as fault:
            print(f"python3: can't open file {words[0]!r}: {fault.strerror}", file=sys.stderr)
            sys.exit(2)
        code = compile(text, words[0], "exec")
        _main.__dict__["__file__"] = words[0]
    sys.modules["__main__"] = _main
    exec(code, _main.__dict__)


def code_of(fault: SystemExit) -> int:
    if fault.code is None:
        return 0
    if isinstance(fault.code, int):
        return fault.code & 0xFF
    print(fault.code, file=sys.stderr)
    return 1


def flush() -> int:
    """0 if all that was said has been taken."""
    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            code = 120
    return code


def show_fault(fault: BaseException) -> str:
    """Its traceback, without our own frames."""
    shown = fault.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    return "".join(traceback.format_exception(type(fault), fault, shown))


def run_cell(text: str) -> "list[tuple[str, dict[str, str]]]":
    """One cell: the value of its last expression, if there is one."""
    global _cells
    _cells += 1
    name = f"<cell {_cells}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = compile(text, name, "exec", ast.PyCF_ONLY_AST)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), _main.__dict__)
    if last is None:
        return []
    value = eval(compile(ast.Expression(last.value), name, "eval"), _main.__dict__)
    if value is None:
        return []
    _main.__dict__["_"] = value
    return [("result", {"text/plain": repr(value)})]


class _Left(BaseException):
    """What `os._exit` becomes: a component can only say that it failed, not with which code."""

    def __init__(self, code: int) -> None:
        self.code = code


def _leave(code: int) -> None:
    raise _Left(code)


os._exit = _leave


class WitWorld(wit_world.WitWorld):
    def exec(self) -> int:
        arguments = list(environment.get_arguments())
        begin(arguments)
        use_streams(at_once="-u" in arguments[1:3])
        try:
            run(arguments)
            code = 0
        except SystemExit as fault:
            code = code_of(fault)
        except _Left as fault:
            return fault.code & 0xFF
        except BaseException as fault:
            code = 130 if isinstance(fault, KeyboardInterrupt) else 1
            flush()
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(show_fault(fault))
        return code or flush()

    def cell(self, code: str, directory: str) -> str:
        if not _cells:
            begin(["python3"])
            sys.modules["__main__"] = _main
        before = os.getcwd()
        shown: list[tuple[str, dict[str, str]]] = []
        try:
            if directory:
                os.chdir(directory)
            shown = run_cell(code)
            status = 0
        except SystemExit as fault:
            status = code_of(fault)
        except _Left as fault:
            return json.dumps({"exit": fault.code & 0xFF, "shown": [], "left": True})
        except BaseException as fault:
            status = 130 if isinstance(fault, KeyboardInterrupt) else 1
            told = show_fault(fault)
            shown = [("error", {"type": type(fault).__name__, "value": _text_of(fault), "traceback": told})]
        finally:
            if directory:
                os.chdir(before)
        flush()
        return json.dumps({"exit": status, "shown": shown})


def _text_of(fault: BaseException) -> str:
    try:
        return str(fault)
    except Exception:
        return ""


use_streams(at_once=True)
gc.collect()
gc.freeze()
