"""Whether code is a module is read from its grammar, and a module gets the `require` that it uses."""

from __future__ import annotations

import pytest

from ringfence.languages.javascript import prepare

MODULES = [
    "import a from 'b'",
    "import 'a'",
    "export const a = 1",
    "export * from 'a'",
    "await 1",
    "if (a) { await b }",
    "for await (const a of b) { }",
    "const a = `${await b}`",
    "console.log(import.meta.url)",
    "function f() { return import.meta }",
]
SCRIPTS = [
    "",
    "const a = require('a')",
    "async function f() { await 1 }",
    "(async () => { await 1; for await (const a of b) { } })()",
    "import('a').then(b)",
    "const o = { async m() { await 1 } }; class A { async m() { await 1 } }",
    "'import a from \"b\"' // export const a = 1",
    "`await ${1}`",
    "function f() { new.target }",
    "module.exports = { import: 1, export: 2, await: 3 }",
    "this is no JavaScript",
]


@pytest.mark.parametrize("code", MODULES)
def test_what_only_modules_have_makes_a_module(code: str) -> None:
    assert prepare(code) == (code, ("--input-type=module",))


@pytest.mark.parametrize("code", SCRIPTS)
def test_everything_else_is_commonjs(code: str) -> None:
    assert prepare(code) == (code, ("--input-type=commonjs",))


@pytest.mark.parametrize("code", ["require('a'); await 1", "await require('a')()", "await 1; require.resolve('a')"])
def test_a_module_that_requires_gets_it_behind_its_last_line(code: str) -> None:
    prepared, _ = prepare(code)

    assert prepared.startswith(code + "\nimport require from")


@pytest.mark.parametrize(
    "code",
    [
        "const require = createRequire(import.meta.url); require('a')",
        "import require from 'a'; require('b')",
        "import { a as require } from 'a'; require('b')",
        "function require() { } export { require }; require()",
    ],
)
def test_a_module_with_a_require_of_its_own_keeps_it(code: str) -> None:
    assert prepare(code)[0] == code
