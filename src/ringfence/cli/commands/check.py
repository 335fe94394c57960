"""`ringfence check`: what would be decided about a command, by which rules, and what would change it."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.completing import complete_languages, complete_roles, complete_tools
from ringfence.cli.elsewhere import is_on_server
from ringfence.cli.network_options import AllowOption
from ringfence.cli.options import typed_options
from ringfence.cli.say import say_coloured, visible
from ringfence.cli.typed_network import typed_network
from ringfence.deferred import deferred
from ringfence.errors import InvalidArgument
from ringfence.languages.registry import find as find_language
from ringfence.manager.blocking import wait_for
from ringfence.manager.options import SandboxOptions
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.manager.policy_pages import network_notes, reach_note
from ringfence.manager.sandbox import Sandbox
from ringfence.policy.isolation import RULE
from ringfence.policy.terms import Terms
from ringfence.values.remedy import Door
from ringfence.values.request import Request
from ringfence.values.risk import RouteDecision
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    from ringfence.cli.on_server import decided_there
else:
    decided_there = deferred("ringfence.cli.on_server", "decided_there")

CODES = {Verdict.ALLOW: 0, Verdict.ASK: 10, Verdict.DENY: 11}
"""Exit codes; above those that shells and typer use for their own faults."""

_VOTES_SHOWN = 30
"""As many as one can read."""
_COLOURS = {Verdict.ALLOW: typer.colors.GREEN, Verdict.ASK: typer.colors.YELLOW, Verdict.DENY: typer.colors.RED}


def check(
    command: Annotated[
        list[str],
        typer.Argument(
            help="One word is a line for the shell; several are a program and its arguments.", show_default=False
        ),
    ],
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="The policy to ask.")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role that the agent has.", autocompletion=complete_roles)
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The tool that would run it; default: shell_exec, or code_run.",
            autocompletion=complete_tools,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            "-l",
            metavar="NAME",
            help="It is code in this language: python, js, ts, bash, ...",
            autocompletion=complete_languages,
        ),
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="Where it would run; default: here.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Use this configuration file.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", "-e", metavar="NAME[=VALUE]", help="A variable to set; without a value, it is copied from here."
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="It would read standard input from here.")] = False,
    allow: AllowOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what would be decided about a command or a piece of code, and where it would go, without running it.

    The decision is the one that `run` would make: by the policy, the configuration, and what it is given.

    Exits with 0 if it may run, 10 if a person has to be asked, 11 if it is refused.

    Examples:

        ringfence check --policy policy.yaml -- "rm -rf build && make"

        ringfence check --policy policy.yaml --role data_analyst --json -- git push

        ringfence check --policy policy.yaml --language python "eval(input())"
    """
    name = find_language(language).name if language is not None else None
    request = _request(command, name, sys.stdin.buffer.read() if stdin else None)
    options = typed_options(
        workspace=workspace,
        config=config,
        env=env,
        policy=policy,
        role=role,
        tool=tool or (SHELL_TOOL if name is None else CODE_TOOL),
        network=typed_network(allow=allow),
    )
    if is_on_server(os.environ):
        decision, inside, notes = decided_there(options, request)
    else:
        decision, inside, notes = _decided(options, request)
    if as_json:
        print(json.dumps(as_object(decision, inside, notes)))
    else:
        say_coloured(shown(decision, inside, notes))
    raise typer.Exit(CODES[decision.verdict])


def _decided(options: SandboxOptions, request: Request) -> tuple[Decision, tuple[Reason, ...], tuple[str, ...]]:
    sandbox = Sandbox.for_one_call(options)
    try:
        decision = sandbox.decide(request)
        inside = sandbox.refused_inside(request) if decision.verdict is not Verdict.DENY else ()
        return decision, inside, (*_notes(sandbox.terms), reach_note(sandbox.grant.network))
    finally:
        wait_for(sandbox.close())


def _request(words: list[str], language: str | None, stdin: bytes | None) -> Request:
    if language is None:
        one = len(words) == 1
        return Request(command=words[0], stdin=stdin) if one else Request(argv=tuple(words), stdin=stdin)
    if len(words) != 1:
        raise InvalidArgument("with --language there is one argument, the code", hint="quote it")
    if language == "bash":
        return Request(command=words[0], language=language, stdin=stdin)
    return Request(code=words[0], language=language, stdin=stdin)


def _notes(terms: Terms | None) -> tuple[str, ...]:
    if terms is None:
        return ("no policy is in force: nobody judges the command, the wall alone holds it; --policy FILE names one",)
    return network_notes(terms)


def as_object(decision: Decision, inside: Sequence[Reason] = (), notes: Sequence[str] = ()) -> dict[str, Any]:
    """The decision as plain values."""
    return {
        "verdict": decision.verdict.name.lower(),
        "sentence": decision.sentence,
        "command": decision.text,
        "route": None if decision.routed is None else _route(decision.routed),
        "refused_inside": [{"rule": reason.rule, "why": reason.why} for reason in inside],
        "notes": list(notes),
        "votes": [
            {
                "verdict": vote.verdict.name.lower(),
                "rule": vote.rule,
                "why": vote.why,
                "allow_by": vote.allow_by,
                "source": vote.source or None,
                "line": vote.line,
                "span": None if vote.span is None else [vote.span.start, vote.span.end],
            }
            for vote in decision.reasons
        ],
    }


def _route(routed: RouteDecision) -> dict[str, Any]:
    return {
        "to": routed.route.name.lower(),
        "why": routed.why,
        "needs": sorted(routed.needs),
        "source": routed.source,
        "line": routed.line,
    }


def shown(decision: Decision, inside: Sequence[Reason] = (), notes: Sequence[str] = ()) -> str:
    """The decision for a person: the verdict, then each vote below the text that it is about."""
    word = typer.style(decision.verdict.name.lower(), fg=_COLOURS[decision.verdict], bold=True)
    lines = [f"{word}: {visible(decision.deciding.why)}"]
    votes = sorted(decision.reasons, key=lambda vote: -vote.verdict)
    for vote in votes[:_VOTES_SHOWN]:
        if vote is decision.reasons[0] and len(votes) > 1:
            continue  # the vote that no rule objects, where something does speak
        lines += ["", *_vote(vote, decision.text)]
    if len(votes) > _VOTES_SHOWN:
        lines += ["", f"  ... and {len(votes) - _VOTES_SHOWN} more votes; --json gives all"]
    if decision.routed is not None:
        lines += ["", *_goes(decision.routed)]
    for reason in inside:
        head = typer.style("wall ", fg=typer.colors.CYAN)
        lines += ["", f"  {head} it runs, and inside this is refused: {visible(reason.why)}"]
        lines.append(f"        rule: {visible(reason.rule)}")
        if remedy := reason.remedy(Door.COMMAND_LINE):
            lines.append(f"        to allow it: {visible(remedy)}")
    if notes:
        lines += ["", *(f"  note: {visible(note)}" for note in notes)]
    return "\n".join(lines)


def _goes(routed: RouteDecision) -> list[str]:
    head = typer.style("wall ", fg=typer.colors.CYAN)
    lines = [f"  {head} {visible(routed.why)}"]
    if routed.needs:
        lines.append(f"        it needs, beyond what is required anyway: {', '.join(sorted(routed.needs))}")
    return [*lines, f"        rule: {RULE} at {visible(routed.source)}:{routed.line}"]


def _vote(vote: Reason, text: str) -> list[str]:
    head = typer.style(f"{vote.verdict.name.lower():5}", fg=_COLOURS[vote.verdict])
    lines = [f"  {head} {visible(vote.why)}", f"        rule: {visible(vote.place)}"]
    if vote.span is not None and vote.span.end > vote.span.start:
        lines += [f"        {line}" for line in underlined(text, vote.span.start, vote.span.end)]
    if vote.allow_by and vote.verdict is not Verdict.ALLOW:
        lines.append(f"        to allow it: {visible(vote.allow_by)}")
    return lines


_AROUND = 40
"""Characters of the text that are shown on either side of what is underlined."""


def underlined(text: str, start: int, end: int) -> tuple[str, str]:
    """A stretch of a text with a little around it, control characters made visible, and the line that marks it."""
    end = min(end, start + 2 * _AROUND)
    before, marked, after = text[max(0, start - _AROUND) : start], text[start:end], text[end : end + _AROUND]
    head = ("..." if start > _AROUND else "") + visible(before)
    tail = visible(after) + ("..." if end + _AROUND < len(text) else "")
    body = visible(marked)
    return head + body + tail, " " * len(head) + "^" * max(1, len(body))
