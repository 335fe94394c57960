"""JavaScript and TypeScript snippets and how risky they look."""

import pytest

from ringfence.policy.risk.assess import assess
from ringfence.policy.risk.patterns import javascript as rows
from ringfence.values.risk import Risk

pytestmark = pytest.mark.req("E2")

SAFE = [
    "",
    "// nothing but a comment",
    "console.log(1 + 1)",
    "const f = (n) => n < 2 ? n : f(n - 1) + f(n - 2);\nconsole.log(f(10));",
    "for (const x of [1, 2, 3]) { console.log(x * 2); }",
    "class A { #x = 1; constructor(y) { this.y = y; } get sum() { return this.#x + this.y; } }\n"
    "console.log(new A(2).sum);",
    "console.log(JSON.stringify({a: [1, 2]}), Object.keys({b: 1}), Math.max(1, 2));",
    "const path = require('path'); console.log(path.join('a', 'b'));",
    "import util from 'node:util'; console.log(util.format('%d', 1));",
    "try { throw new Error('x'); } catch (error) { console.log(error.message); } finally {}",
    "const {a, ...rest} = {a: 1, b: 2}; console.log(`${a}`, rest, [1][0]);",
    "async function main() { await Promise.resolve(1); }\nmain().then(console.log);",
    "module.exports = { add: (a, b) => a + b };",
    'console.log(\'require("child_process").exec("rm -rf /")\');',
    "process.stdout.write('x'); process.exit(0);",
    "outer: while (true) { break outer; }",
    "console.log(/a+/gi.test('caat'));",
]
SAFE_TYPESCRIPT = [
    "const x: number = 1; console.log(x);",
    "interface A { name: string; run?: Function }\nenum B { C = 1, D }\ntype E<T> = T extends string ? A : never;",
    "class X<T> { private a!: number; constructor(private readonly b: T) {} get(): T { return this.b; } }",
    "const y = (1 as unknown as string)!; function f(a?: number): asserts a is number {}",
]
RISKY = [
    ("const os = require('os')", Risk.LOW),
    ("let i = 0; [1][i]", Risk.LOW),
    ("function f() { return this; }", Risk.LOW),
    ("setTimeout(() => {}, 1)", Risk.LOW),
    ("x._private", Risk.LOW),
    ("const fs = require('fs'); fs.writeFileSync('a', 'b')", Risk.MEDIUM),
    ("import('fs')", Risk.MEDIUM),
    ("import('f' + 's')", Risk.MEDIUM),
    ("process.env.HOME", Risk.MEDIUM),
    ("a[b]()", Risk.MEDIUM),
    ("arguments[1]", Risk.MEDIUM),
    ("const fs = require('fs'); fs.rmSync('a')", Risk.HIGH),
    ("require('fs').promises.rm('a')", Risk.HIGH),
    ("const {unlinkSync} = require('node:fs')", Risk.HIGH),
    ("import {rm} from 'fs/promises'", Risk.HIGH),
    ("import net from 'net'", Risk.HIGH),
    ("import * as http from 'node:http'", Risk.HIGH),
    ("export * from './other'", Risk.HIGH),
    ("import x from 'a-package-that-nobody-knows'", Risk.HIGH),
    ("fetch('https://example.com')", Risk.HIGH),
    ("eval('1')", Risk.HIGH),
    ("(0, eval)('1')", Risk.HIGH),
    ("globalThis['ev' + 'al']", Risk.HIGH),
    ("const p = process", Risk.HIGH),
    ("const {env} = process", Risk.HIGH),
    ("const r = require", Risk.HIGH),
    ("module.require('fs')", Risk.HIGH),
    ("\\u0065val('1')", Risk.HIGH),
    ("Object.getOwnPropertyDescriptor(x, y)", Risk.HIGH),
    ("Reflect.get(x, y)", Risk.HIGH),
    ("with (x) { y }", Risk.HIGH),
    ("<!-- a comment for some\n1", Risk.HIGH),
    ("const f = (", Risk.HIGH),
    ("import {exec} from 'child_process'", Risk.CRITICAL),
    ("require('child_process').execSync('id')", Risk.CRITICAL),
    ("child_process.exec('id')", Risk.CRITICAL),  # `node -e` needs no require
    ("[].constructor.constructor('return process')()", Risk.CRITICAL),
    ("[]['const' + 'ructor']", Risk.CRITICAL),
    ("const {constructor: C} = []", Risk.CRITICAL),
    ("new Function('return 1')", Risk.CRITICAL),
    ("process.binding('fs')", Risk.CRITICAL),
    ("process.mainModule", Risk.CRITICAL),
    ("eval(text)", Risk.CRITICAL),
    ("eval('eval(x)')", Risk.CRITICAL),
    ("require(name)", Risk.CRITICAL),
    ("import(name)", Risk.CRITICAL),
    ("require('child\\x5fprocess')", Risk.CRITICAL),
    ("require('vm')", Risk.CRITICAL),
]
RISKY_TYPESCRIPT = [
    ("import fs = require('fs')", Risk.MEDIUM),
    ("const f = eval as any", Risk.HIGH),
    ("const f = <any>require('child_process')", Risk.CRITICAL),
    ("const x: number = (", Risk.HIGH),
]


@pytest.mark.parametrize("code", SAFE)
@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_code_that_only_computes_is_safe(language: str, code: str) -> None:
    found = assess(language, code)

    assert found.risk is Risk.SAFE, [str(finding) for finding in found.findings]


@pytest.mark.parametrize("code", SAFE_TYPESCRIPT)
def test_types_cost_nothing(code: str) -> None:
    found = assess("typescript", code)

    assert found.risk is Risk.SAFE, [str(finding) for finding in found.findings]


@pytest.mark.parametrize(("code", "risk"), RISKY)
def test_a_snippet_has_its_risk(code: str, risk: Risk) -> None:
    found = assess("javascript", code)

    assert found.risk is risk, [str(finding) for finding in found.findings]


@pytest.mark.parametrize(("code", "risk"), RISKY_TYPESCRIPT)
def test_a_typescript_snippet_has_its_risk(code: str, risk: Risk) -> None:
    assert assess("typescript", code).risk is risk


def test_a_finding_says_what_and_where() -> None:
    found = assess("javascript", "const s = 'é'; eval(s);\n  new Function('x');")

    assert [(finding.line, finding.column, finding.pattern) for finding in found.findings] == [
        (1, 16, "dynamic code"),
        (1, 16, "eval"),
        (2, 7, "Function"),
    ]


def test_markup_is_read_in_jsx_and_tsx() -> None:
    for language in ("jsx", "tsx"):
        assert assess(language, "const a = <b c={1}>x</b>;").risk is Risk.LOW


@pytest.mark.parametrize("table", [rows.MODULES, rows.MEMBERS, rows.GLOBALS, rows.PROPERTIES, rows.CONSTRUCTS])
def test_every_row_has_its_reason(table: dict[str, rows.RiskRow]) -> None:
    assert [name for name, row in table.items() if not row.why] == []
