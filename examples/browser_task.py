"""A whole task with a browser: an agent mends a page, serves it in its box, looks at it, and a person takes it over.

A script stands in for the model; everything else is what a real agent would use. Needs a browser (`ringfence browser
install` says how to get one).
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import ringfence
from ringfence.tools import schemas

Call = tuple[str, dict[str, Any]]

SCRIPT: list[Call] = [
    ("search", {"pattern": "<h1>", "names": "*.html"}),
    ("file_edit", {"path": "index.html", "old": "Helo", "new": "Hello"}),
    ("bash", {"command": "python3 -B test_page.py"}),
    ("bash", {"command": "python3 -m http.server 8000 >/tmp/server.log 2>&1 &", "background": True}),
    ("browser_navigate", {"url": "http://localhost:8000/"}),
    ("browser_snapshot", {"interactive": True}),
    ("browser_type", {"role": "textbox", "name": "Name", "text": "Ada"}),
    ("browser_click", {"role": "button", "name": "Greet"}),
    ("browser_wait", {"text": "Hello, Ada"}),
    ("browser_read", {"form": "text"}),
    ("browser_screenshot", {"save_to": "shot.png"}),
    ("fetch", {"url": "https://example.com/"}),  # nobody has allowed a host
    ("browser_navigate", {"url": "https://example.com/"}),
    ("browser_navigate", {"url": "file:///etc/passwd"}),
]
PAGE = """<!doctype html><title>Greeter</title><h1>Helo</h1>
<label>Name <input id=name></label>
<button onclick="greeting.textContent = 'Hello, ' + document.getElementById('name').value">Greet</button>
<p id=greeting></p>
"""


async def work(project: Path) -> list[tuple[str, ringfence.ToolAnswer]]:
    answers: list[tuple[str, ringfence.ToolAnswer]] = []
    async with ringfence.Workspaces() as workspaces:
        shadow = await workspaces.new(project)
        async with ringfence.Sandbox(workspace=project, shadow=shadow) as sandbox:
            world = ringfence.WorldInterface(sandbox)
            known = {tool["name"] for tool in schemas.anthropic(world.tools)}  # what a model would be sent
            assert all(name in known for name, _ in SCRIPT)
            for name, arguments in SCRIPT:
                answer = await world.execute(name, arguments)
                answers.append((name, answer))
                mark = "refused" if answer.is_error else "done" if answer.ok else "failed"
                print(f"{mark:8}{name:20}{answer.texts[0].splitlines()[0][:90]}")
        for change in await workspaces.changes(shadow):  # a person looks, and takes over what they want
            print(change.kind, change.path)
        await workspaces.commit(shadow, select=ringfence.Selection(paths=("index.html",)))
        await workspaces.discard(shadow)
    return answers


def main() -> None:
    if "browser_navigate" not in {tool["name"] for tool in schemas.anthropic()}:
        sys.exit("There is no browser here: ringfence browser install")
    with tempfile.TemporaryDirectory() as root:
        project = Path(root)
        (project / "index.html").write_text(PAGE)
        (project / "test_page.py").write_text("assert '<h1>Hello</h1>' in open('index.html').read()\n")
        answers = asyncio.run(work(project))
        assert "<h1>Hello</h1>" in (project / "index.html").read_text()
        assert not (project / "shot.png").exists()  # it was not taken over
        assert [answer.is_error for _, answer in answers] == [False] * 11 + [True] * 3


if __name__ == "__main__":
    main()
