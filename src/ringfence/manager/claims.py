"""What a point of a checklist is: a claim, whether it holds, and by which evidence."""

from enum import StrEnum

from ringfence.dataclass import dataclass


class ClaimState(StrEnum):
    """Whether something is as it should be."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "cannot be checked here"


@dataclass(frozen=True, slots=True)
class ClaimItem:
    """One point of a checklist."""

    claim: str
    found: ClaimState
    evidence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Checklist:
    name: str
    items: tuple[ClaimItem, ...]
