"""Every Python example of the documentation runs as it stands there, and mypy finds nothing against it.

The blocks of a page run one after the other, in one namespace, in a directory with a small project. A block that needs
something else says so in a comment before it: `<!-- not run: a Docker daemon -->`.
"""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```python\n(.*?)```", re.DOTALL)
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if "adr" not in path.parts and "```python\n" in path.read_text(encoding="utf-8")
)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: Path) -> list[tuple[bool, str]]:
    """Whether it is run, and its text; a file that is included is an example of its own."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(not note, text) for note, text in found if "--8<--" not in text]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home" / "work"
    (place / "project").mkdir(parents=True)
    (place / "project" / "Makefile").write_text("fix:\n\t@echo fixed > fixed.txt\n")
    (place / "policy.yaml").write_text("policies: {default: {validation: {strictness: normal}}}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("STATE", "WORKSPACES", "SNAPSHOTS", "SHADOWS"):
        monkeypatch.setenv(f"RINGFENCE_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, project: Path) -> None:
    namespace: dict[str, object] = {"__name__": "example"}

    async def work() -> None:
        for is_run, text in blocks(page):
            if is_run:
                code = compile(text, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if code.co_flags & inspect.CO_COROUTINE:
                    await eval(code, namespace)
                else:  # it may start a loop of its own
                    await asyncio.to_thread(eval, code, namespace)

    asyncio.run(work())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_that_are_files_run(example: Path, project: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_mypy_finds_nothing_against_any_example(tmp_path: Path) -> None:
    for number, page in enumerate(PAGES):
        texts = [text for is_run, text in blocks(page) if is_run]
        if not texts:
            continue
        lines = "\n".join(texts)
        imports = [line for line in lines.splitlines() if re.match(r"(import|from) ", line)]
        body = "\n".join(line for line in lines.splitlines() if not re.match(r"(import|from) ", line))
        name = f"page_{number}_{re.sub(r'[^a-z]', '_', page.stem)}.py"
        (tmp_path / name).write_text(
            "\n".join([*imports, "", "", "async def page() -> None:", indent(body, "    "), ""])
        )

    env = os.environ | {"MYPYPATH": str(ROOT / "src")}
    options = [
        "--strict",
        "--config-file=",
        "--explicit-package-bases",
        f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            *options,
            "--disable-error-code=no-redef",
            "--disable-error-code=union-attr",
            "--disable-error-code=assignment",
            str(tmp_path),
            *map(str, EXAMPLES),
        ],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout
