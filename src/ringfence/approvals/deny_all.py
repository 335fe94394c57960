"""Says no to everything: the default where nobody can be asked."""

from ringfence.approvals.base import Answer, Question, refuse


class DenyAllConfirmationService:
    """Says no to everything: the default where nobody can be asked."""

    async def confirm(self, question: Question) -> Answer:
        return refuse(question, by="nobody", how="there is nobody to ask")
