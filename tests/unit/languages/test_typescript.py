"""Types become blanks: what is left is JavaScript, where it stood. What the results print is tested with Node."""

from __future__ import annotations

import time

import pytest
import tree_sitter_javascript
from hypothesis import assume, given
from hypothesis import strategies as st
from tree_sitter import Language, Parser

from ringfence.errors import InvalidArgument
from ringfence.languages import erase
from tests.unit.languages.snippets import SNIPPETS

JAVASCRIPT = Language(tree_sitter_javascript.language())

WRITTEN_OUT = {name for name in SNIPPETS if "enum" in name} | {
    "abstract classes",
    "class expressions",
    "parameter properties",
    "grouping survives an erased assertion",
    "an object cast in an arrow function",
    "casts over lines",
    "a program",
}
"""Those with more in the result than blanks, `;` and parentheses in place of something."""

TYPES = [
    "number",
    "A.B.C",
    "A.B<C, D>[]",
    "{ a: number; b?: string }",
    "{\n  a: number\n}",
    "[a: string, b?: number]",
    "(x: number) => void",
    "new (x: A) => B",
    "| A | B",
    "keyof typeof x",
    'A["b"]',
    "A extends B ? C : D",
    "`a${string}b`",
    "'ä😀'",
    "readonly A[]",
    "Promise<Array<Map<string, () => void>>>",
    "{ [K in keyof T]?: T[K] }",
    'import("x").Y',
]
PLACES = [
    "let v: T = x",
    "const f = (a: T, b?: T, ...c: T): T => a",
    "const f = async <A extends T>(a: A): Promise<T> => a",
    "function f<A extends T = T>(this: T, a: T): T { return a }",
    "function f(a: T): T;\nfunction f(a) {}",
    "class K<A extends T> extends L<T> implements M<T> { private a: T = 1; declare b: T; c?(x: T): T {} }",
    "abstract class K { abstract a: T; static readonly b = 1 as T; abstract m(x: T): T; d!: T }",
    "const v = x as T",
    "const v = (x satisfies T as T).y",
    "const v = <T>x",
    "f<T>(new K<T>(x as T), y!)",
    "type X<Y = T> = T",
    "interface X<Y extends T> { a: T; m(x: T): T }",
    "declare function f(x: T): T",
    "try { } catch (e: T) { }",
    "for (const a of x as T) { }",
    "const v = y ? x as T : z as T",
    "const v = `${x as T}`",
    "export const { a, b = 1 as T }: T = x",
    "switch (x as T) { case y as T: type X = T; break }",
]


def units(text: str) -> list[str]:
    """UTF-16 units, which is what JavaScript counts columns in."""
    data = text.encode("utf-16-le")
    return [data[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2)]


def moved(code: str, erased: str) -> list[tuple[int, str]]:
    """What is in the result and was not in the same place before."""
    before, after = units(code), units(erased)
    assert len(before) == len(after)
    return [(at, new) for at, (old, new) in enumerate(zip(before, after, strict=True)) if new not in (old, " ")]


def is_javascript(code: str) -> bool:
    return not Parser(JAVASCRIPT).parse(code.encode()).root_node.has_error


@pytest.mark.parametrize("name", SNIPPETS)
def test_no_line_moves(name: str) -> None:
    code, _ = SNIPPETS[name]

    erased = erase(code)

    assert erased.count("\n") == code.count("\n")
    assert is_javascript(erased)


@pytest.mark.parametrize("name", sorted(SNIPPETS.keys() - WRITTEN_OUT))
def test_no_column_moves(name: str) -> None:
    code, _ = SNIPPETS[name]

    assert {sign for _, sign in moved(code, erase(code))} <= set(";()")


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(TYPES)), min_size=1, max_size=6))
def test_any_type_in_any_place_leaves_javascript_in_its_place(parts: list[tuple[str, str]]) -> None:
    assume(("const v = <T>x", "{\n  a: number\n}") not in parts)  # a cast over lines gets parentheses
    code = ";\n".join(place.replace("T", kind, 1).replace("T", "B") for place, kind in parts)

    erased = erase(code)

    assert is_javascript(erased), erased
    assert {sign for _, sign in moved(code, erased)} <= set(";()")


@given(st.text(alphabet="ab<>(){}[]:;=?!,.|&'`\" \n", max_size=40))
def test_any_text_gives_javascript_or_a_refusal_with_a_place(code: str) -> None:
    try:
        erased = erase(code)
    except InvalidArgument as refusal:
        assert refusal.line is not None and 1 <= refusal.line <= code.count("\n") + 1
        assert refusal.column is not None and refusal.column >= 1
    else:
        assert erased.count("\n") == code.count("\n")


@pytest.mark.parametrize("name", SNIPPETS)
def test_erasing_twice_changes_nothing(name: str) -> None:
    erased = erase(SNIPPETS[name][0])

    assert erase(erased) == erased


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("let x: number = 1", "let x         = 1"),
        ("f(a!, b as T)", "f(a , b     )"),
        ("a\ntype T = 1\n(b)", "a\n;         \n(b)"),
        ("a;\ntype T = 1\n(b)", "a;\n          \n(b)"),
        ("x as T\n(y)", "x;    \n(y)"),
        ("class A { x = 1\n  private [y] = 2 }", "class A { x = 1\n  ;       [y] = 2 }"),
        ("class A { get: T\n  m() {} }", "class A { get;  \n  m() {} }"),
        ("() => <T>{ a: 1 }", "() => (  { a: 1 })"),
        ("(a): {\n} => a", "(a    \n) => a"),
        ("async <\nT>(a: T) => a", "async (\n   a   ) => a"),
        ("a + b as T * c", "(a + b)      * c"),
        ("import { type A, b } from 'c'", "import {         b } from 'c'"),
        ("enum E { A, B = 'b' }", 'var E; (function (E) { E[E["A"] = 0] = "A"; E["B"] = \'b\' })(E || (E = {}));'),
        (
            "class A { constructor(private x: number) { f() } }",
            "class A { x; constructor(        x        ) { this.x = x; f() } }",
        ),
        (
            "class A extends B { constructor(public x) { super()\n} }",
            "class A extends B { x; constructor(       x) { super(); this.x = x;\n} }",
        ),
    ],
)
def test_the_result(code: str, expected: str) -> None:
    assert erase(code) == expected


@pytest.mark.parametrize(
    ("code", "line", "column", "says"),
    [
        ("let a = 1\nnamespace N { export const x = 1 }", 2, 1, "write a module"),
        ("import fs = require('fs')", 1, 1, "const x = require"),
        ("import A = B.C", 1, 1, "const x = a.b"),
        ("export = 5", 1, 1, "export default x"),
        ("let ä = 1; enum E { A = 'a', B }", 1, 30, "needs a value"),
        ("enum E { [x] = 1 }", 1, 10, "cannot be computed"),
        ("class A extends B { constructor(private x) { if (x) super() } }", 1, 21, "statement of its own"),
        ("class A { constructor(private { x }) { } }", 1, 23, "pattern"),
        ("let a = 1\nlet x: = 5", 2, 8, "syntax error"),
        ("if (a {\n}", 1, 6, "')' is missing"),
        ("x as any.b", 1, 1, "put parentheses"),
        ("let x = y as A\n[1]\n", 2, 1, "';'"),
        ("let a = 1\nlet b = '\ud800'", 2, 10, "surrogate"),
    ],
)
def test_what_cannot_be_erased_is_refused_with_its_place_and_what_to_write(
    code: str, line: int, column: int, says: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        erase(code)

    assert (caught.value.line, caught.value.column) == (line, column)
    assert says in str(caught.value)


def test_a_refused_namespace_is_erased_when_it_holds_only_types() -> None:
    assert erase("namespace N { export type X = 1 }").strip() == ""


def test_jsx_is_kept_and_its_types_go() -> None:
    assert erase("const a = <B<T> c={d as T}>{e!}</B>", jsx=True) == "const a = <B    c={d     }>{e }</B>"


def test_plain_javascript_is_left_alone() -> None:
    code = "import a from 'b'\nexport class C { #d = 1; static e() { return this?.f ?? /g/u } }\nf: for (;;) break f\n"

    assert erase(code) == code


def test_time_grows_with_the_length() -> None:
    code = SNIPPETS["a program"][0]

    def seconds(text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            erase(text)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(code * 80) < 32 * seconds(
        code * 10
    )  # 8 if linear, 64 if it grew with the square; machines are noisy


def test_deep_code_is_no_fault_of_ours() -> None:
    deep = 5000

    assert erase("(" * deep + "x as T" + ")" * deep) == "(" * deep + "x     " + ")" * deep
    assert "as" not in erase("x" + " as T" * deep)
