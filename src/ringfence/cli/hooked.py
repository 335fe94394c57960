"""Judges and runs the commands of hooks and of `ringfence-shell`, with the options of `ringfence run`."""

import os
import shlex
from collections.abc import Mapping
from typing import Any, Final

from ringfence.agents.hooks.deciding import Judge
from ringfence.agents.hooks.tokens import Ledger, Ticket
from ringfence.agents.shell_words import ShellCall
from ringfence.approvals.base import Answer, Choice, Question
from ringfence.cli.exits import Finished
from ringfence.cli.options import typed_options
from ringfence.cli.piping import brings_input
from ringfence.cli.quick import read_line
from ringfence.cli.running import run_command
from ringfence.cli.typed_network import typed_network
from ringfence.errors import InvalidArgument
from ringfence.manager.assemble import has_policy
from ringfence.manager.blocking import wait_for
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.policing import SHELL_TOOL
from ringfence.manager.sandbox import Sandbox
from ringfence.values.request import Request
from ringfence.values.verdict import Decision

OPTIONS_VARIABLE: Final = "RINGFENCE_SHELL_OPTIONS"
_USUAL_TIMEOUT: Final = "30m"
"""The client has a time limit of its own; this one is for what it forgets."""
_FOR_GRANT: Final = frozenset(
    ("workspace", "read", "write", "read_only", "deny", "env", "config", "policy", "role", "tool")
)
_NOT_HERE: Final = frozenset(("as_json", "terminal", "stdin", "language", "python"))


class AskedByClient:
    """Says yes to the one command that a client has asked a person about: its token says so, and is redeemed.

    Nobody was asked about anything else, such as a host that the command wants to reach while it runs.
    """

    def __init__(self, client: str, command: str) -> None:
        self._client = client
        self._command = command

    async def confirm(self, question: Question) -> Answer:
        is_asked = question.command == self._command
        return Answer(
            choice=Choice.YES if is_asked else Choice.NO,
            by="the person" if is_asked else "nobody",
            how=f"asked by {self._client}" if is_asked else f"{self._client} has asked about the command alone",
            request_hash=question.request_hash,
        )


def read_options(words: tuple[str, ...]) -> dict[str, Any]:
    """Options of `ringfence run`, by name.

    Raises:
        InvalidArgument: some are none, or have no place here.
    """
    read = read_line([*words, "--", "true"])
    if read is None or read[0] != ["true"] or read[1].keys() & _NOT_HERE:
        raise InvalidArgument(
            f"these are no options for commands of an agent: {shlex.join(words)}",
            hint="such as --allow pip; see `ringfence run --help`",
        )
    return read[1]


def judge_by(words: tuple[str, ...]) -> Judge:
    """What the policy says about a command; None where there is none.

    Raises:
        InvalidArgument: the options make no sense.
    """
    read_options(words)

    def judge(command: str, more: tuple[str, ...]) -> Decision | None:
        given = read_options((*words, *more))
        network = typed_network(allow=given.get("allow"), secret=given.get("secret"))
        chosen = {name: value for name, value in given.items() if name in _FOR_GRANT}
        chosen.setdefault("tool", SHELL_TOOL)
        options = typed_options(**chosen, network=network)
        if not has_policy(options, os.environ):
            return None
        sandbox = Sandbox.for_one_call(options)
        try:
            return sandbox.decide(Request(command=command))
        finally:
            wait_for(sandbox.close())

    return judge


def own_ledger(environ: Mapping[str, str]) -> Ledger:
    """The tokens of this user."""
    return Ledger(state_directory(environ, home_directory(environ)))


def run_words(call: ShellCall, ledger: Ledger, environ: Mapping[str, str]) -> int:
    """Run a command as a shell would; its exit code.

    Raises:
        CommandNotAllowed: its token is not good.
        RingfenceError: it was not run.
    """
    ticket: Ticket | None = None
    if call.token:
        ticket = ledger.redeem(call.token, call.text)
        words = ticket.options
    else:
        words = tuple(shlex.split(environ.get(OPTIONS_VARIABLE, "")))
    given = read_options(words)
    given.setdefault("timeout", _USUAL_TIMEOUT)
    if not call.words:
        raise InvalidArgument("there is no command", hint="write -c COMMAND; `ringfence shell` opens a shell")
    try:
        run_command(
            list(call.words),
            **given,
            streams_input=brings_input(),
            cwd=os.getcwd(),
            confirmation=AskedByClient(ticket.client, call.text) if ticket is not None and ticket.approved else None,
        )
    except Finished as end:
        return end.code
    return 0
