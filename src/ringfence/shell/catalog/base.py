"""Sets of names, as the rows of the catalogue write them."""


def names(text: str = "") -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
