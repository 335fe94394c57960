"""A test is left out for a reason that it says, and never for good (requirement D9)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CALLS = {"skip", "skipif", "importorskip", "xfail"}


def skips(source: str) -> Iterator[tuple[int, str, ast.Call | None]]:
    """Line, which kind, and the call; None for a mark that is given no argument at all."""
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
            if _is_pytest(node.func):
                yield node.lineno, node.func.attr, node
        elif isinstance(node, ast.Attribute) and node.attr in CALLS and id(node) not in called and _is_pytest(node):
            yield node.lineno, node.attr, None


def _is_pytest(node: ast.Attribute) -> bool:
    text = ast.unparse(node.value)
    return text in ("pytest", "pytest.mark", "mark")


def fault(kind: str, call: ast.Call | None) -> str:
    """What is wrong with a skip; empty if nothing is."""
    if call is None:
        return "gives no reason"
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if kind == "xfail" and not ("strict" in named and ast.unparse(named["strict"]) == "True"):
        return "may pass without anybody noticing: say strict=True"
    is_mark = "mark" in ast.unparse(call.func)
    if kind == "skip" and is_mark:
        return "a mark that skips wherever it is: a test that never runs"
    reason = named.get("reason") or (call.args[0] if kind == "skip" and call.args else None)
    if kind == "importorskip":
        return "" if reason is not None else "gives no reason"
    if reason is None or (isinstance(reason, ast.Constant) and not str(reason.value).strip()):
        return "gives no reason"
    return ""


FILES = sorted(path for path in TESTS.rglob("*.py") if path != Path(__file__))


@pytest.mark.req("D9")
def test_every_skip_says_why() -> None:
    faults = [
        f"{path.relative_to(TESTS)}:{line}: {kind}: {what}"
        for path in FILES
        for line, kind, call in skips(path.read_text())
        if (what := fault(kind, call))
    ]

    assert faults == []


@pytest.mark.req("D9")
@pytest.mark.parametrize(
    ("source", "is_fine"),
    [
        ("pytest.skip('needs root')", True),
        ("pytest.skip(f'{name}: {missing}')", True),
        ("pytest.mark.skipif(x, reason='no bash')", True),
        ("pytest.skip()", False),
        ("pytest.skip('')", False),
        ("pytest.mark.skipif(x)", False),
        ("pytest.mark.skip(reason='later')", False),
        ("@pytest.mark.skip\ndef test(): ...", False),
        ("pytest.mark.xfail(reason='known', strict=True)", True),
        ("pytest.mark.xfail(reason='known')", False),
        ("pytest.mark.xfail(strict=True)", False),
        ("pytest.importorskip('x')", False),
    ],
)
def test_a_skip_without_a_reason_would_be_found(source: str, is_fine: bool) -> None:
    ((_, kind, call),) = skips(source)

    assert (fault(kind, call) == "") is is_fine
