"""What was changed in a shadow: shown, and carried over to the project after the person has said yes.

The agent may ask for a commit and never makes one: that is what the shadow is for. The yes is for the changes as they
were shown; what has become different since is a conflict, and then nothing is carried over.
"""

import asyncio
import hashlib
import os
import time
from dataclasses import replace
from typing import Final

from ringfence.approvals.ask import ask
from ringfence.approvals.base import Question
from ringfence.approvals.show import why_too_long
from ringfence.errors import Internal
from ringfence.manager.workspaces import Shadow, Workspaces
from ringfence.mcp.boxes import OpenBox
from ringfence.tools.world import answers
from ringfence.tools.world.answers import ToolAnswer
from ringfence.tools.world.text import cut, shown
from ringfence.values.change import Change, Committed, Selection
from ringfence.values.paths import is_below
from ringfence.values.risk import Risk
from ringfence.values.verdict import Reason, Verdict

_ASK_SECONDS: Final = 300.0
_PATCH_MAX: Final = 64 * 1024
_LINES_MAX: Final = 500


async def review(box: OpenBox, action: str, paths: tuple[str, ...]) -> ToolAnswer:
    """Show or commit the changes at or below some paths; all of them, if none is named."""
    if box.shadow is None:
        raise Internal("there is no shadow to review", hint="the person can start `ringfence mcp --shadow`")
    async with box.reviewing:
        if box.options.shadow_bytes or action == "commit":
            await box.renew()  # what is kept in memory is on disk then, and nothing changes while somebody looks
        found = await asyncio.to_thread(_changes, box.shadow, paths)
        if action == "diff" or not found:
            return await _shown(box, box.shadow, found)
        return await _commit(box, box.shadow, found, paths)


def _changes(shadow: Shadow, paths: tuple[str, ...]) -> tuple[Change, ...]:
    wanted = tuple(os.path.normpath(path) for path in paths)
    with Workspaces() as workspaces:
        found = workspaces.changes(shadow)
    names = ((change, (change.path, change.source)) for change in found)
    return tuple(one for one, both in names if not wanted or any(is_below(n, w) for w in wanted for n in both))


def _patch(shadow: Shadow, found: tuple[Change, ...]) -> str:
    with Workspaces() as workspaces:
        return workspaces.patch(shadow, found).data.decode("utf-8", "replace")


def _line(change: Change) -> str:
    source = f" (from {shown(change.source)})" if change.source else ""
    held = f" [not committed: {shown(change.refused)}]" if change.refused else ""
    return f"{change.kind} {shown(change.path)}{source}{held}"


async def _shown(box: OpenBox, shadow: Shadow, found: tuple[Change, ...]) -> ToolAnswer:
    if not found:
        return answers.answered("Nothing was changed.", values={"changes": [], "shadow": shadow.id})
    patch = cut(shown(await asyncio.to_thread(_patch, shadow, found)), _PATCH_MAX)
    lines = [_line(change) for change in found[:_LINES_MAX]]
    words = f"{len(found)} changes in shadow {shadow.name or shadow.id}; none has reached the project yet."
    values = {"changes": lines, "patch": patch, "shadow": shadow.id}
    return answers.answered("\n".join((words, *lines)), patch, values=values)


async def _commit(box: OpenBox, shadow: Shadow, found: tuple[Change, ...], paths: tuple[str, ...]) -> ToolAnswer:
    name = shadow.name or shadow.id
    by_hand = f"the person can look and commit themselves: ringfence workspace commit -p {name}"
    question = await asyncio.to_thread(_question, shadow, found)
    approval = await ask(box.confirmation, question, _ASK_SECONDS)
    if not approval.covers(question.request_hash):
        why = f"Refused: the person has to say yes to a commit, and did not ({approval.how}) [rule: shadow]; {by_hand}"
        return answers.told(why, "not_approved")
    done = await asyncio.to_thread(_committed, shadow, found, paths)
    refused = [shown(str(one)) for one in (*done.conflicts, *done.refused)]
    if not done.is_done:
        return answers.told("\n".join(("Nothing was committed: conflicts.", *refused, by_hand)), "conflict")
    applied = [_line(change) for change in done.applied]
    words = (f"{len(applied)} changes are in the project now.", *applied[:_LINES_MAX])
    left = ("Left out:", *refused) if refused else ()
    values = {"committed": applied[:_LINES_MAX], "shadow": shadow.id}
    return answers.answered("\n".join((*words, *left)), values=values)


def _committed(shadow: Shadow, found: tuple[Change, ...], paths: tuple[str, ...]) -> Committed:
    with Workspaces() as workspaces:
        return workspaces.commit(shadow, select=Selection(paths=paths or None), seen=found)


def _question(shadow: Shadow, found: tuple[Change, ...]) -> Question:
    """With the whole patch, if a person can be asked to read it; else with the names of all files."""
    lines = "\n".join(_line(change) for change in found)
    question = Question(
        id=os.urandom(16).hex(),
        request_hash=hashlib.sha256(f"{shadow.id}\0{found!r}".encode()).hexdigest(),
        command=f"commit {len(found)} changes of shadow {shadow.id} to {shadow.lower}",
        reasons=(Reason(Verdict.ASK, "shadow", "changes of a shadow reach the project when a person says so"),),
        risk=Risk.MEDIUM,
        expires_at=time.time() + _ASK_SECONDS,
        may_remember=False,
        details=(("changes", lines), ("patch", _patch(shadow, found))),
    )
    if not why_too_long(question):
        return question
    short = f"too long to be shown here; ringfence workspace diff --patch {shadow.id}"
    return replace(question, details=(("changes", lines), ("patch", short)))
