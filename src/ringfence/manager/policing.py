"""`PolicyEngine`: the policies in force, read from their files, asked about requests, paths and hosts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ringfence.dataclass import replace
from ringfence.deferred import deferred, deferred_module
from ringfence.errors import InvalidConfig
from ringfence.manager.configuring import home_directory, load_config, state_directory
from ringfence.manager.hiding import Caller, blacklist_of
from ringfence.policy.decide import Place, decide
from ringfence.values.facts import HostFact, PathFact, Span, Touch
from ringfence.values.paths import INSIDE
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    from ringfence.manager.network_presets import lazy_clients
    from ringfence.policy import document, judging
    from ringfence.policy.layer import effective, known_roles, known_tools
    from ringfence.policy.load import load_policy
    from ringfence.policy.model import Policy
    from ringfence.policy.reading import ExpansionContext
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.request import Request
else:
    lazy_clients = deferred("ringfence.manager.network_presets", "lazy_clients")
    effective = deferred("ringfence.policy.layer", "effective")
    known_roles = deferred("ringfence.policy.layer", "known_roles")
    known_tools = deferred("ringfence.policy.layer", "known_tools")
    load_policy = deferred("ringfence.policy.load", "load_policy")
    ExpansionContext = deferred("ringfence.policy.reading", "ExpansionContext")
    judging = deferred_module("ringfence.policy.judging")
    document = deferred_module("ringfence.policy.document")

StrPath = str | os.PathLike[str]

ORGANISATION = "RINGFENCE_POLICY"
"""The variable that names the organisation's file, which is in force whatever else is."""

CODE_TOOL = "code_run"
SHELL_TOOL = "shell_exec"
"""As which tools code and commands are judged, unless somebody says otherwise."""

_NOWHERE = Span(0, 0)


class PolicyEngine:
    """Policies in layers, the most trusted first; each later one can only tighten what the earlier ones say.

    engine = PolicyEngine.from_files(project="policy.yaml")
    engine.decide(Request(command="rm -rf build"), role="code_assistant").sentence
    """

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self._terms: dict[tuple[str, str | None], Terms] = {}

    @classmethod
    def from_files(
        cls,
        organisation: StrPath | None = None,
        project: StrPath | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Read the organisation's file (or the one that RINGFENCE_POLICY names) and the project's.

        Raises:
            InvalidConfig: a file is not there, cannot be read, or is wrong; names the place in it.
        """
        environ = os.environ if environ is None else environ
        named = organisation if organisation is not None else environ.get(ORGANISATION, "").strip() or None
        return cls(read_policy(path, environ) for path in (named, project) if path is not None)

    @classmethod
    def from_text(cls, text: str, source: str = "policy", *, is_foreign: bool = False) -> Self:
        """One policy that is not in a file.

        Args:
            is_foreign: whether somebody else wrote it, who learns nothing of our environment's variables by it.
        """
        environ = {"HOME": str(home_directory(os.environ))} if is_foreign else os.environ
        return cls((load_policy(text, source, _expansion_context(environ)),))

    def tightened(self, later: Iterable[Policy]) -> Self:
        """The same policies with further ones after them."""
        return type(self)((*self.policies, *later))

    def under(self, earlier: Iterable[Policy]) -> Self:
        """The same policies below others; one that exists already is not added again."""
        mine = {policy.source for policy in self.policies}
        return type(self)((*(policy for policy in earlier if policy.source not in mine), *self.policies))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(policy.source for policy in self.policies)

    @property
    def roles(self) -> tuple[str, ...]:
        return known_roles(self.policies)

    @property
    def tools(self) -> tuple[str, ...]:
        return known_tools(self.policies)

    def terms(self, tool: str = "shell_exec", role: str | None = None) -> Terms:
        """What holds for a tool in a role.

        Raises:
            InvalidConfig: no policy knows the tool, or the role.
        """
        wanted = (tool, role)
        if wanted not in self._terms:
            self._terms[wanted] = effective(self.policies, tool, role)
        return self._terms[wanted]

    def decide(
        self,
        request: Request,
        tool: str = "shell_exec",
        role: str | None = None,
        *,
        language: str | None = None,
        workspace: StrPath = INSIDE,
        grant: Grant | None = None,
    ) -> Decision:
        """All votes on a request, without running it, under the configuration that is in force.

        Args:
            workspace: where it would run; need not be there.
            grant: what it would be granted, instead of what the configuration says.

        Raises:
            InvalidConfig: no policy knows the tool, or the role; or the configuration is wrong.
        """
        terms, home = self.terms(tool, role), home_directory(os.environ)
        if grant is None:
            config = load_config(os.environ, home)
            caller = Caller(os.environ, home, state_directory(os.environ, home))
            hiding = blacklist_of(config, caller, terms, os.fspath(workspace))
            grant = replace(hiding, limits=terms.limits(config.limits), requires=terms.requires)
        cwd = grant.workspace if request.cwd is None else grant.workspace / request.cwd
        return decide(request, grant, Place(cwd, home), terms, language=language or request.language)

    check_permission = decide

    def check_path(
        self, path: StrPath, *, write: bool = False, tool: str = "file_read", role: str | None = None
    ) -> Reason:
        """The strictest vote on a path, as seen from inside the workspace."""
        terms = self.terms(tool, role)
        fact = PathFact(Touch.WRITE if write else Touch.READ, os.fspath(path), _NOWHERE)
        where = judging.Where(Path(INSIDE), Path(INSIDE))
        return _strictest((*judging.on_tool(terms), *judging.on_path(terms, fact, where)))

    def check_host(
        self, host: str, port: int | None = None, *, tool: str = "browser_automation", role: str | None = None
    ) -> Reason:
        """The strictest vote on a host."""
        terms = self.terms(tool, role)
        fact = HostFact(host, port, _NOWHERE, tool)
        return _strictest((*judging.on_tool(terms), *judging.on_host(terms, fact)))

    def __repr__(self) -> str:
        return f"PolicyEngine({', '.join(self.sources) or 'no policy'})"


def read_policy(path: StrPath, environ: Mapping[str, str]) -> Policy:
    """Read one policy file.

    Raises:
        InvalidConfig: it is not there, cannot be read, or is wrong. There is no falling back: a policy that somebody
            named is in force or nothing runs.
    """
    source = os.fspath(path)
    try:
        with open(source, "rb") as file:
            data = file.read(4 * document.MAX_CHARACTERS + 1)
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or str(fault)
        raise InvalidConfig(
            f"the policy cannot be read: {why}", source=source, hint="name a file that is there"
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise InvalidConfig("the policy is not UTF-8", source=source, line=line, hint="save it as UTF-8") from None
    return load_policy(text, source, _expansion_context(environ))


def organisation_policy(environ: Mapping[str, str]) -> tuple[Policy, ...]:
    """The policy that RINGFENCE_POLICY names, if it is set."""
    named = environ.get(ORGANISATION, "").strip()
    return (read_policy(named, environ),) if named else ()


def _expansion_context(environ: Mapping[str, str]) -> ExpansionContext:
    home = home_directory(environ)
    return ExpansionContext(home, environ, lazy_clients(environ, home))


def _strictest(votes: Iterable[Reason]) -> Reason:
    allowed = Reason(Verdict.ALLOW, "default", "no rule objects")
    return max((allowed, *votes), key=lambda vote: vote.verdict)
