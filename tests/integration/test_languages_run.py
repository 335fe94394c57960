"""What the table of languages says to run does run, by the real programs, with the output that it should have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ringfence.languages import LANGUAGES, Language, erase, find, invocation
from ringfence.languages.registry import LONGEST_INLINE
from tests.unit.languages.snippets import SNIPPETS

HELLO = {
    "python": "print('hello')",
    "javascript": "console.log('hello')",
    "typescript": "console.log('hello' as string)",
    "bash": "echo hello",
    "r": "cat('hello\\n')",
    "ruby": "puts 'hello'",
    "perl": 'print "hello\\n"',
    "php": "echo 'hello', PHP_EOL;",
    "lua": "print('hello')",
    "julia": 'println("hello")',
}


def run(language: Language, code: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    program = next(filter(None, map(shutil.which, language.programs)), None)
    if program is None:
        pytest.skip(f"needs {' or '.join(language.programs)}; {language.install}")
    made = invocation(language, code, program)
    # an argument leaves standard input to the code
    given = b"from outside" if made.stdin is None else made.stdin
    return subprocess.run(made.argv, input=given, capture_output=True, timeout=60, cwd=cwd)


def printed(language: Language, code: str, cwd: Path) -> str:
    done = run(language, code, cwd)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("filler", ["", "\n" * LONGEST_INLINE], ids=["short", "long"])
@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_each_language_runs_short_and_long_code(language: Language, filler: str, tmp_path: Path) -> None:
    assert printed(language, HELLO[language.name] + filler, tmp_path) == "hello\n"


@pytest.mark.parametrize("name", SNIPPETS)
def test_erased_typescript_prints_what_the_compiler_makes_it_print(name: str, tmp_path: Path) -> None:
    code, prints = SNIPPETS[name]

    assert printed(find("typescript"), code, tmp_path) == prints


def test_types_are_an_error_for_node_unless_they_are_erased(tmp_path: Path) -> None:
    code = "const a: number = 1; enum E { A }"

    assert b"SyntaxError" in run(find("javascript"), code, tmp_path).stderr
    assert run(find("javascript"), erase(code), tmp_path).returncode == 0


@pytest.mark.parametrize("filler", ["", "\n" * LONGEST_INLINE], ids=["short", "long"])
@pytest.mark.parametrize(
    ("code", "prints"),
    [
        ("console.log(typeof require('fs').existsSync)", "function\n"),
        ("import { sep } from 'node:path'; console.log(sep)", "/\n"),
        ("console.log(await Promise.resolve(1))", "1\n"),
        ("const { sep } = require('path'); console.log(sep, await 2)", "/ 2\n"),
        ("console.log(require('./local.cjs') + await 1)", "42\n"),
        ("console.log(require('./local.cjs'))", "41\n"),
        ("import local from './local.cjs'; console.log(local)", "41\n"),
        ("import('./local.cjs').then(m => console.log(m.default))", "41\n"),
        ("-console.log('a minus first')", "a minus first\n"),
    ],
)
def test_modules_and_commonjs_both_run(code: str, prints: str, filler: str, tmp_path: Path) -> None:
    (tmp_path / "local.cjs").write_text("module.exports = 41")

    assert printed(find("js"), code + filler, tmp_path) == prints


def test_short_code_can_read_standard_input(tmp_path: Path) -> None:
    code = "console.log(require('fs').readFileSync(0, 'utf8'))"

    assert printed(find("js"), code, tmp_path) == "from outside\n"


@pytest.mark.parametrize("filler", ["", "\n" * LONGEST_INLINE], ids=["short", "long"])
@pytest.mark.parametrize("first", ["", "await 1; require('fs')"], ids=["commonjs", "module"])
def test_a_traceback_points_at_the_line_and_column_of_the_typescript(first: str, filler: str, tmp_path: Path) -> None:
    thrower = "const c = (d: A, e?: Map<string, A>): never => { throw new Error(d.b) }"
    code = f"interface A {{\n  b: string\n}}\n{first}\n{thrower}\nc({{ b: '!' }})"
    column = thrower.index("new Error") + 1

    assert f":5:{column}" in run(find("ts"), code + filler, tmp_path).stderr.decode()
