"""The WASI engine from the front: what must work in it, what modules try, and what becomes of each."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.bundles.reasons import Reason
from ringfence.engines.base import Box
from ringfence.engines.wasi.cache import Cache
from ringfence.engines.wasi.places import WasiPlaces
from ringfence.engines.wasi.staging import Stage
from ringfence.errors import BundleRefused, Damaged, InitializationFailed, InvalidConfig
from ringfence.manager.bundling import Bundles
from ringfence.manager.options import REQUIRED
from ringfence.manager.sandbox import Sandbox
from ringfence.tools.world.bundles import bundle_tools
from ringfence.tools.world.interface import EVERY, WorldInterface
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, LimitHit, Refused, Result, TimedOut
from ringfence.values.request import Request
from tests.support import wasi
from tests.support.bundles import a_bundle, a_signed, a_store, module

KEY = Ed25519PrivateKey.generate()
Work = Callable[[Box], Awaitable[Any]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    wasi.needed()
    (tmp_path / "work").mkdir()
    return tmp_path


def use(place: Path, work: Work, **grant: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            box = await wasi.engine(place / "wasi", place).open(Grant(workspace=place / "work", **grant))
            try:
                return await work(box)
            finally:
                await box.close()

    return asyncio.run(main())


def run(place: Path, *requests: Request, **grant: Any) -> list[Result]:
    async def work(box: Box) -> list[Result]:
        return [await box.run(request) for request in requests]

    results = use(place, work, **grant)
    assert isinstance(results, list)
    return results


def tool(place: Path, text: str, *, limits: Limits | None = None, timeout: float = 20, **manifest: Any) -> Result:
    """A module of a text, as an installed tool, run once; then the box has to do something else."""
    store = a_store(place / "wasi", KEY)
    store.install(a_signed(KEY, a_bundle(module(text), **manifest)))
    done, after = run(
        place,
        Request(argv=("acme/hello",), timeout=timeout),
        Request(command="echo fine"),
        limits=limits or Limits(),
    )
    assert after.stdout == "fine\n"
    return done


# --- what must work ---------------------------------------------------------------------------------------------------

PYTHON = {
    "json": (
        "import json; print(json.dumps({'b': [1, 2.5, None], 'a': 'é'}, sort_keys=True))",
        '{"a": "\\u00e9", "b": [1, 2.5, null]}',
    ),
    "regex": ("import re; print(re.sub(r'(\\w+)@(\\w+)', r'\\2 at \\1', 'me@here'))", "here at me"),
    "sqlite": (
        "import sqlite3; c = sqlite3.connect('db'); c.execute('create table t(x)'); "
        "c.executemany('insert into t values(?)', "
        "[(1,), (2,)]); c.commit(); print(c.execute('select sum(x) from t').fetchone()[0])",
        "3",
    ),
    "files": (
        "import pathlib, csv, io; pathlib.Path('d').mkdir(); pathlib.Path('d/a.csv').write_text('x,y\\n1,2\\n'); "
        "print(list(csv.DictReader(open('d/a.csv'))))",
        "[{'x': '1', 'y': '2'}]",
    ),
    "unicode": ("print('ünï', len('\U0001f600'), '\U0001f600')", "ünï 1 \U0001f600"),
    "decimals": ("from decimal import Decimal as D; print(D('0.1') + D('0.2'))", "0.3"),
    "archives": (
        "import tarfile, zlib, gzip; print(zlib.decompress(zlib.compress(b'x' * 9)).decode(), "
        "gzip.decompress(gzip.compress(b'y')).decode())",
        "xxxxxxxxx y",
    ),
    "dates": ("import datetime as d; print((d.date(2024, 2, 28) + d.timedelta(2)).isoformat())", "2024-03-01"),
    "hashes": ("import hashlib; print(hashlib.sha256(b'').hexdigest()[:8])", "e3b0c442"),
    "classes": ("from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int = 1\nprint(P())", "P(x=1)"),
    "import of the workspace": ("open('mine.py', 'w').write('y = 7'); import mine; print(mine.y)", "7"),
    "chance": ("import random, secrets; print(random.random() != 0.5 and len(secrets.token_hex(4)))", "8"),
}


@pytest.mark.req("D2")
def test_what_people_do_in_python_works(place: Path) -> None:
    requests = [Request(argv=("python3", "-c", code)) for code, _ in PYTHON.values()]

    for (name, (_, said)), done in zip(PYTHON.items(), run(place, *requests), strict=True):
        assert (done.stdout, done.stderr, done.ending) == (f"{said}\n", "", Exited(0)), name


@pytest.mark.req("D2")
def test_what_people_do_in_javascript_works(place: Path) -> None:
    code = (
        "const fs = require('fs'); fs.writeFileSync('a.txt', 'ü1\\n'); fs.appendFileSync('a.txt', '2\\n');"
        "console.log(fs.readFileSync('a.txt', 'utf8').split('\\n').length, JSON.stringify({a: [1, null]}), "
        "fs.readdirSync('.'));"
        "setTimeout(() => console.log('later'), 5); Promise.resolve().then(() => console.log('soon'));"
    )
    done, awaited, failed = run(
        place,
        Request(argv=("node", f"--eval={code}")),
        Request(argv=("node", "--eval=console.log(await Promise.resolve([1, 2].map((x) => x * 2))); process.exit(4)")),
        Request(argv=("node", "--eval=throw new TypeError('mine')")),
    )

    assert done.stdout == '3 {"a":[1,null]} ["a.txt"]\nsoon\nlater\n'
    assert (awaited.stdout, awaited.ending) == ("[2,4]\n", Exited(4))
    assert "TypeError: mine" in failed.stderr and failed.ending == Exited(1)


TOOLS = {
    "printf 'b 2\\na 1\\nb 2\\n' | sort | uniq -c": "      1 a 1\n      2 b 2\n",
    "seq 5 | head -n 4 | tail -n +2 | tac": "4\n3\n2\n",
    'echo \'[{"n":"x","v":2},{"n":"y","v":1}]\' | jq -r \'sort_by(.v)[] | .n + "=" + .n\'': "y=y\nx=x\n",
    "printf 'one\\ntwo\\n' > a; sed -e 's/o\\(n\\)e/<\\1>/' -e '2d' a": "<n>\n",
    "printf 'x\\ny\\n' > a; printf 'x\\nz\\n' > b; diff -u a b": "--- a\n+++ b\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n",
    "mkdir -p t/u; echo 1 > t/u/f; tar cf t.tar t; rm -r t; tar xf t.tar; cat t/u/f; find t -type f": "1\nt/u/f\n",
    "echo a,b,c | cut -d, -f1,3 | tr a-z A-Z": "A,C\n",
    "echo 1 > x.txt; echo 2 > y.txt; cat *.txt; ls *.nothing": "1\n2\n",
    "grep -c o <<< $'foo\\nbar\\nzoo'": "2\n",
    "test -d . && echo yes || echo no; false || echo second; true && false; echo $V": "yes\nsecond\nval\n",
    "cat <<E | wc -l\none\ntwo\nE": "2\n",
    "mkdir p; cd p; echo deep > f; cd ..; cat p/f; cp p/f q; mv q r; wc -c < r; rm r; ls": None,
}


@pytest.mark.req("D2")
def test_the_small_tools_and_how_a_line_joins_them(place: Path) -> None:
    async def work(box: Box) -> None:
        for line, said in TOOLS.items():
            done = await box.run(Request(command=line))
            assert isinstance(done.ending, Exited), (line, done)
            assert said is None or done.stdout == said, (line, done.stdout, done.stderr)

    use(place, work, env=(("V", "val"),))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("echo $(date)", "$(date)"),
        ("for x in 1 2; do echo $x; done", "`for`"),
        ("sleep 5 &", "background"),
        ("diff <(echo 1) x", "<(echo 1)"),
        ("X=1; echo $X", "assignment"),
        ("echo $((1 + 2))", "arithmetic"),
        ("(cd x; ls)", "subshell"),
        ("f() { echo; }; f", "f()"),
        ("echo ok; gcc x.c", "gcc"),
        ("echo $HOME", "$HOME"),
        ("echo 'unended", "cannot be read"),
    ],
)
def test_what_only_a_shell_could_run_is_refused_by_its_name_and_nothing_of_it_runs(
    place: Path, line: str, part: str
) -> None:
    (done,) = run(place, Request(command=f"echo ran > proof; {line}"))

    assert isinstance(done.ending, Refused) and part in done.ending.why, done.ending
    assert not (place / "work" / "proof").exists()


def test_ten_megabytes_of_output_and_every_byte_of_input_arrive(place: Path) -> None:
    every = bytes(range(256)) * 40
    loud, echoed, guest = run(
        place,
        Request(argv=("python3", "-c", "import sys; sys.stdout.write('x' * 10_000_000)")),
        Request(argv=("cat",), stdin=every),
        Request(argv=("python3", "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"), stdin=every),
    )

    assert len(loud.stdout_bytes) == 10_000_000
    assert echoed.stdout_bytes == guest.stdout_bytes == every


# --- what modules try -------------------------------------------------------------------------------------------------

LOOP = '(module (memory (export "memory") 1) (func (export "_start") (loop $l (br $l))))'
RECURSE = '(module (memory (export "memory") 1) (func $f (export "_start") (call $f)))'
GROW = """(module (memory (export "memory") 1) (func (export "_start")
  (loop $l (br_if $l (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) (unreachable)))"""
TABLE = """(module (memory (export "memory") 1) (table $t 1 funcref) (func (export "_start")
  (if (i32.ne (table.grow $t (ref.null func) (i32.const 400000000)) (i32.const -1)) (then (unreachable)))))"""
FLOOD = """(module (import "wasi_snapshot_preview1" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (func (export "_start") (i32.store (i32.const 4) (i32.const 60000))
  (loop $l (drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20))) (br $l))))"""


@pytest.mark.req("D2")
def test_a_module_that_loops_is_ended_when_the_time_of_the_call_is_over(place: Path) -> None:
    assert tool(place, LOOP, timeout=1).ending == TimedOut(1)


def test_a_loop_is_ended_at_the_cpu_time_that_its_manifest_allows(place: Path) -> None:
    store = a_store(place / "wasi", KEY)
    store.install(a_signed(KEY, a_bundle(module(LOOP), limits={"cpu_seconds": 1})))
    store.install(a_signed(KEY, a_bundle(module(LOOP), name="acme/slow", limits={"wall_seconds": 1})))

    cpu, wall = run(place, Request(argv=("acme/hello",), timeout=20), Request(argv=("acme/slow",), timeout=20))

    assert cpu.ending == Exited(152) and "CPU time" in cpu.stderr
    assert wall.ending == TimedOut(1)


def test_recursion_is_a_trap(place: Path) -> None:
    done = tool(place, RECURSE)

    assert done.ending == Exited(134) and "call stack exhausted" in done.stderr


def test_memory_and_tables_grow_to_their_limit_and_no_further(place: Path) -> None:
    grown = tool(place, GROW, limits=Limits(memory_bytes=64 << 20))
    assert grown.ending == Exited(134) and "unreachable" in grown.stderr  # it was told, and went on

    assert tool(place, TABLE, version="1.1.0").ending == Exited(0)


def test_endless_output_is_stopped_at_the_limit(place: Path) -> None:
    done = tool(place, FLOOD, limits=Limits(output_bytes=100_000))

    assert isinstance(done.ending, LimitHit) and len(done.stdout_bytes) == 100_000


def test_a_module_whose_code_makes_no_sense_is_refused_with_a_code_and_the_box_lives(place: Path) -> None:
    code = bytearray(module('(module (memory (export "memory") 1) (func (export "_start") (nop) (nop)))'))
    code[code.index(b"\x01\x01\x0b")] = 0xFF  # no instruction
    store = a_store(place / "wasi", KEY)
    store.install(a_signed(KEY, a_bundle(bytes(code))))

    async def work(box: Box) -> None:
        with pytest.raises(BundleRefused) as caught:
            await box.run(Request(argv=("acme/hello",)))
        assert caught.value.reason == Reason.NOT_COMPILED
        assert (await box.run(Request(command="echo fine"))).stdout == "fine\n"

    use(place, work)


def test_threads_and_shared_memory_are_not_compiled(place: Path) -> None:
    text = '(module (memory (export "memory") 1 1 shared) (func (export "_start")))'
    store = a_store(place / "wasi", KEY)
    store.install(a_signed(KEY, a_bundle(module(text))))

    async def work(box: Box) -> None:
        with pytest.raises(BundleRefused, match="not_compiled"):
            await box.run(Request(argv=("acme/hello",)))

    use(place, work)


@pytest.mark.req("D2", "E3")
def test_no_path_of_the_corpus_leads_out_of_the_workspace(place: Path) -> None:
    """Each path is opened for reading and for writing by a module, beside a link that leads out."""
    secret = place / "secret"
    secret.write_text("hunter2")
    work = place / "work"
    (work / "out").symlink_to(place)
    (work / "abs").symlink_to("/etc")
    (work / "up").symlink_to("..")
    lines = (Path(__file__).parents[1] / "corpus" / "paths.jsonl").read_text().splitlines()
    paths = [json.loads(line).get("path", "") for line in lines]
    paths += [
        "../secret",
        "out/secret",
        "up/secret",
        str(secret),
        "/proc/self/environ",
        "/__runner__/run.py",
        "/etc/passwd",
        "abs/passwd",
        "/",
        "//",
        "/dev/null/../../etc/passwd",
    ]
    code = (
        "import sys, json\nread, wrote = [], []\n"
        "for path in json.load(sys.stdin):\n"
        "  for mode, into in (('rb', read), ('ab', wrote)):\n"
        "    try:\n      f = open(path, mode); (f.read(10) if mode == 'rb' else f.write(b'x')); into.append(path)\n"
        "    except (OSError, ValueError, UnicodeError): pass\n"
        "print(json.dumps([read, wrote]))"
    )
    given = json.dumps([path for path in paths if isinstance(path, str)]).encode()
    before = sorted(os.listdir(place))

    (done,) = run(place, Request(argv=("python3", "-c", code), stdin=given))

    assert done.ok, done.stderr
    read, wrote = json.loads(done.stdout)
    for path in (*read, *wrote):
        assert os.path.realpath(work / path.removeprefix("/workspace/")).startswith(f"{work}/"), path
    assert secret.read_text() == "hunter2" and sorted(os.listdir(place)) == before
    assert len(paths) > 50


def test_a_module_sees_no_socket_no_process_and_nothing_but_what_was_granted(place: Path) -> None:
    code = (
        "import os\nsaid = []\n"
        "for name, what in {'socket': lambda: __import__('socket').create_connection(('127.0.0.1', 1), 1), "
        "'process': lambda: __import__('subprocess').run(['true']), 'fork': lambda: os.fork(), "
        "'proc': lambda: open('/proc/self/maps').read(), "
        "'list': lambda: os.listdir('/'), 'runner': lambda: os.listdir('/__runner__')}.items():\n"
        "  try:\n    what(); said.append(name)\n  except BaseException: pass\n"
        "print(said, sorted(os.environ))"
    )
    (done,) = run(place, Request(argv=("python3", "-c", code)), env=(("MINE", "1"),))

    assert done.stdout == "[] ['MINE', 'PWD']\n"


# --- what others try --------------------------------------------------------------------------------------------------


def test_compiled_code_that_somebody_changed_is_not_run(place: Path) -> None:
    cache = Cache(place / "cache")
    stage = Stage(cache)
    stage.make()
    engine = wasi.engine(place / "wasi", place)

    async def compile_once() -> str:
        return await stage.compile(engine._native, "tool", "key", module())

    name = asyncio.run(compile_once())
    assert stage.compiled("tool", "key") == name
    path = next(cache.directory.glob(f"code-*/{name}"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))

    with pytest.raises(Damaged, match="changed"):
        stage.compiled("tool", "key")
    path.unlink()
    assert stage.compiled("tool", "key") == ""
    path.write_bytes(bytes(data))
    with pytest.raises(Damaged):
        stage.compiled("tool", "key")


def test_a_cache_that_others_can_write_is_an_error_and_nothing_runs(place: Path) -> None:
    (place / "cache").mkdir(mode=0o777)
    (place / "cache").chmod(0o777)
    engine = wasi.engine(place / "wasi", place)
    engine._places = WasiPlaces(place / "wasi", place / "cache")

    with pytest.raises(InitializationFailed, match="only you can write"):
        asyncio.run(engine.open(Grant(workspace=place / "work")))


# --- from the front ---------------------------------------------------------------------------------------------------


@pytest.fixture
def front(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in wasi.environ(place / "wasi").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(place / "state"))
    return place


def sandboxed(front: Path, work: Callable[[Sandbox], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60), Sandbox(workspace=front / "work", **options) as sandbox:
            return await work(sandbox)

    return asyncio.run(main())


@pytest.mark.req("D1")
@pytest.mark.parametrize("how", ["option", "environment", "guarantee", "policy"])
def test_the_engine_is_chosen_by_name_or_by_what_is_required(
    front: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    options: dict[str, Any] = {}
    if how == "option":
        options["engine"] = "wasi"
    elif how == "environment":
        monkeypatch.setenv("RINGFENCE_TOOL_ENGINE", "wasi")
    elif how == "guarantee":
        options["requires"] = REQUIRED | {Guarantee.NO_NATIVE_CODE}
    else:
        (front / "policy.yaml").write_text("policies:\n  default:\n    engine: wasi\n")
        options["policy"] = front / "policy.yaml"

    done = sandboxed(front, lambda sandbox: sandbox.shell("echo here | cat"), **options)

    assert done.stdout == "here\n" and done.wall.name.startswith("wasi in ")
    assert Guarantee.NO_NATIVE_CODE in done.wall.guarantees and str(done.sandbox_type) == "wasi"


def test_a_policy_holds_for_modules_as_for_programs(front: Path) -> None:
    (front / "policy.yaml").write_text(
        "policies:\n  default:\n    engine: wasi\n  tools:\n    shell_exec:\n      denied_commands: [rm]\n"
    )

    async def work(sandbox: Sandbox) -> tuple[Result, Result]:
        return await sandbox.shell("rm x"), await sandbox.shell("ls")

    refused, done = sandboxed(front, work, policy=front / "policy.yaml")
    assert refused.blocked and done.ok
    with pytest.raises(InvalidConfig, match="has to be used"):
        sandboxed(front, lambda sandbox: sandbox.shell("ls"), policy=front / "policy.yaml", engine="native")


@pytest.mark.req("D2", "E8")
def test_an_installed_bundle_is_a_tool_of_the_world_with_its_own_arguments(front: Path) -> None:
    store = a_store(front / "wasi", KEY)
    store.install(a_signed(KEY))
    main = (
        b"import json, sys\ngiven = json.load(sys.stdin)\n"
        b"print(given['word'] * given.get('times', 1), open('/bundle/more.txt').read())\n"
    )
    arguments = {"properties": {"word": {"type": "string"}, "times": {"type": "integer"}}, "required": ["word"]}
    files = {"main.py": main, "more.txt": b"more"}
    bundle = a_bundle(
        files=files, name="acme/say", runtime="python", entry="main.py", input="json", arguments=arguments
    )
    store.install(a_signed(KEY, bundle))

    async def work(sandbox: Sandbox) -> list[Any]:
        world = WorldInterface(sandbox, tools=(*EVERY, *bundle_tools(Bundles())))
        return [
            await world.execute("acme__hello", {"args": ["x"]}),
            await world.execute("acme__say", {"word": "ab", "times": 2}),
            await world.execute("acme__say", {"times": 2}),
        ]

    hello, said, wrong = sandboxed(front, work, engine="wasi")
    assert hello.values["stdout"] == "hello\n"
    assert said.values["stdout"] == "abab more\n", said
    assert wrong.is_error and wrong.error_code == "invalid_argument"


def test_a_working_directory_that_is_a_link_leads_nowhere_outside(place: Path) -> None:
    """Modules cannot follow it, and the runner must not do it for them."""
    work = place / "work"
    (work / "out").symlink_to("/usr")
    (work / "real").mkdir()
    (work / "real" / "seen").touch()
    (work / "inner").symlink_to("real")

    out, inner = run(place, *(Request(command="ls", cwd=work / name) for name in ("out", "inner")))

    assert inner.stdout == "seen\n", "one that stays inside is followed"
    assert "bin" not in out.stdout and out.ending != Exited(0)
