"""Verdicts, the reasons for them, and the decision that they add up to."""

from enum import IntEnum

from ringfence.dataclass import dataclass, field
from ringfence.values.facts import Span
from ringfence.values.grant import Grant
from ringfence.values.remedy import Door, Need
from ringfence.values.risk import Assessment, RouteDecision


class Verdict(IntEnum):
    """Ordered by strictness, so that the strictest of many is their `max()`."""

    ALLOW = 0
    ASK = 1
    DENY = 2


_SAID = {Verdict.ALLOW: "allowed", Verdict.ASK: "a person has to say yes", Verdict.DENY: "refused"}


@dataclass(frozen=True, slots=True)
class Reason:
    """One vote: what a rule says, which rule it was and where it is written, and what would change its mind."""

    verdict: Verdict
    rule: str
    why: str
    allow_by: str = ""
    source: str = ""
    """The file that holds the rule; empty for a built-in one."""
    line: int | None = None
    span: Span | None = None
    """The stretch of the command's text that it is about."""
    need: Need | None = None
    """The grant that would change its mind, if one would."""

    def remedy(self, door: Door) -> str:
        """What would change its mind, in the words of this door."""
        return self.need.said(door) if self.need is not None else self.allow_by

    @property
    def place(self) -> str:
        """The rule's name, with the file and line where it is written."""
        at = self.source + (f":{self.line}" if self.line is not None else "")
        return f"{self.rule} at {at}" if at else self.rule

    def __str__(self) -> str:
        tail = f"; to allow it: {self.allow_by}" if self.allow_by and self.verdict is not Verdict.ALLOW else ""
        return f"{_SAID[self.verdict]}: {self.why} [rule: {self.place}]{tail}"


@dataclass(frozen=True, slots=True)
class Asking:
    """How a person is to be asked, where the verdict is to ask."""

    timeout_seconds: float = 60.0
    """No answer within this time is a refusal: a minute is enough for someone who is there."""
    remember_session: bool = False
    """Whether one yes may count for the same request again, until the session ends."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Every vote on a request, and what it may have if they come to a yes."""

    reasons: tuple[Reason, ...]
    grant: Grant
    asking: Asking = Asking()
    text: str = ""
    """The command that the reasons' spans refer to."""
    routed: RouteDecision | None = None
    """Where it goes, by its risk; None where no policy asks for that."""
    assessment: Assessment | None = field(default=None, repr=False, compare=False)
    """How risky it looks; None where nothing hung on that."""
    deciding: Reason = field(init=False, repr=False, compare=False)
    """The strictest vote; the first one given among equals. Found once: all along the way somebody asks for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "deciding", max(self.reasons, key=lambda reason: reason.verdict))

    @property
    def verdict(self) -> Verdict:
        return self.deciding.verdict

    @property
    def sentence(self) -> str:
        """The decision in one sentence: what, by which rule, and what would change it."""
        return str(self.deciding)

    @property
    def full(self) -> str:
        """The sentence, then every vote, strictest first, with the text that each one is about."""
        votes = sorted(self.reasons, key=lambda reason: -reason.verdict)
        return "\n".join((self.sentence, *(f"  {vote.verdict.name.lower():5}  {self._shown(vote)}" for vote in votes)))

    def _shown(self, vote: Reason) -> str:
        about = f" ({self.text[vote.span.start : vote.span.end]!r})" if vote.span and self.text else ""
        return f"{vote.why}{about} [rule: {vote.place}]"
