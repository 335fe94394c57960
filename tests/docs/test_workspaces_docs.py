"""docs/workspaces.md: its examples run, and it names every kind of leftover, every call and every limit."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ringfence import AgentWorkspace, ArchiveLimits
from ringfence.sync import SnapshotStore
from ringfence.workspace.leftovers.base import LeftoverKind

PAGE = (Path(__file__).parents[2] / "docs/workspaces.md").read_text()
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    if re.search(r"AgentWorkspace|SnapshotStore|find_leftovers", block)
]


@pytest.mark.req("E3", "X5")
def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("WORKSPACES", "SNAPSHOTS"):
        monkeypatch.setenv(f"RINGFENCE_{name}_DIR", str(tmp_path / name))
    (tmp_path / "project").mkdir()
    assert len(BLOCKS) == 4
    for block in BLOCKS:
        exec(compile(block, "docs/workspaces.md", "exec"), {})

    said = capsys.readouterr().out
    shown = re.search(r"print\(error\)  # (.*)", PAGE)
    assert shown is not None and shown[1] in said
    assert (tmp_path / "project-2").is_dir()


def test_everything_public_is_named() -> None:
    calls = [
        name
        for kind in (AgentWorkspace, SnapshotStore)
        for name in dir(kind)
        if not name.startswith("_") and name not in ("close", "resolve_dir", "collect_garbage", "session_id")
    ]
    limits = [field.name for field in fields(ArchiveLimits) if field.name != "ratio_from_bytes"]
    missing = [name for name in (*calls, *limits, *LeftoverKind) if name not in PAGE]
    assert missing == []
