"""Says yes to everything. For development only, and every record says so."""

import warnings
from typing import Final

from ringfence.approvals.base import Answer, Choice, Question

BY: Final = "automatic (development)"


class DevelopmentOnlyWarning(UserWarning):
    """Something is in use that must not be in production."""


class AutoApproveConfirmationService:
    """Says yes to everything. For development only, and every record says so."""

    def __init__(self) -> None:
        warnings.warn(
            "every question is answered with yes, and nobody is asked: for development only",
            DevelopmentOnlyWarning,
            stacklevel=2,
        )

    async def confirm(self, question: Question) -> Answer:
        return Answer(choice=Choice.YES, by=BY, how="nobody was asked", request_hash=question.request_hash)
