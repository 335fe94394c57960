"""A whole task through `WorldInterface`: an agent mends a project on a shadow, and a person takes the change over.

A script stands in for the model; everything else is what a real agent would use. With a provider's SDK, `tools` goes
into its request and the calls come out of its answer; see docs/tools.md.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ringfence
from ringfence.tools import schemas

Call = tuple[str, dict[str, Any]]

SCRIPT: list[Call] = [
    ("search", {"pattern": "def ", "names": "*.py"}),
    ("file_read", {"path": "area.py"}),
    ("bash", {"command": "python3 -B -m unittest -q"}),
    ("file_edit", {"path": "area.py", "old": "width + height", "new": "width * height"}),
    ("bash", {"command": "python3 -B -m unittest -q"}),
    ("bash", {"command": "python3 -m http.server 8000 >/tmp/server.log 2>&1 &", "background": True}),
    (
        "run_code",
        {"code": "import urllib.request as u, time; time.sleep(0.5); u.urlopen('http://127.0.0.1:8000/').status"},
    ),
    ("fetch", {"url": "https://example.com/"}),
    ("file_read", {"path": "../../etc/shadow"}),
]


def scripted_model(tools: list[dict[str, Any]]) -> Iterator[Call]:
    """Stands in for a language model that was sent the tools."""
    known = {tool["name"] for tool in tools}
    assert all(name in known for name, _ in SCRIPT)
    yield from SCRIPT


async def work(project: Path) -> None:
    async with ringfence.Workspaces() as workspaces:
        shadow = await workspaces.new(project)
        async with ringfence.Sandbox(workspace=project, shadow=shadow) as sandbox:
            world = ringfence.WorldInterface(sandbox)
            for name, arguments in scripted_model(schemas.anthropic(world.tools)):
                answer = await world.execute(name, arguments)
                mark = "refused" if answer.is_error else "done" if answer.ok else "failed"
                print(f"{mark:8}{name:11}{answer.texts[0].splitlines()[0][:90]}")
        print((await workspaces.patch(shadow)).data.decode())  # a person looks, and takes over what they want
        await workspaces.commit(shadow, select=ringfence.Selection(paths=("area.py",)))
        await workspaces.discard(shadow)
    assert "width * height" in (project / "area.py").read_text()


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        project = Path(root)
        (project / "area.py").write_text("def area(width, height):\n    return width + height\n")
        (project / "test_area.py").write_text(
            "import unittest\nfrom area import area\n\n\nclass Area(unittest.TestCase):\n"
            "    def test_area(self):\n        self.assertEqual(area(3, 4), 12)\n"
        )
        asyncio.run(work(project))


if __name__ == "__main__":
    main()
