"""What the yes of a coding agent's user covers: the command that they were asked about, and nothing that it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ringfence.approvals.base import Choice
from ringfence.approvals.question import make_question
from ringfence.cli.hooked import AskedByClient
from ringfence.egress.base import NetworkQuestion
from ringfence.manager.networking import as_question
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Reason, Verdict

COMMAND = "touch x"


def test_the_yes_is_for_the_command_and_for_no_host_that_it_wants_to_reach() -> None:
    yes = AskedByClient("claude-code", COMMAND)
    decision = Decision((Reason(Verdict.ASK, "r", "why", ""),), Grant(workspace=Path("/w")))
    asked = make_question(Request(command=COMMAND), decision, session="s", seconds=10)
    other = make_question(Request(command="touch y"), decision, session="s", seconds=10)
    reach = as_question(NetworkQuestion("box", "example.com", 443, "POST", "/", "it is asked about", ""), "box")

    found = [asyncio.run(yes.confirm(each)).choice for each in (asked, other, reach)]

    assert found == [Choice.YES, Choice.NO, Choice.NO]
