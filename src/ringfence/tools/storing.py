"""The workspace as the tools' place for files, for front doors that see no workspace of their own."""

from collections.abc import Iterator
from contextlib import contextmanager

from ringfence.workspace.agent import AgentWorkspace


@contextmanager
def open_storage(root: str) -> Iterator[AgentWorkspace]:
    """The files below a directory, with the usual rules on names.

    Raises:
        InvalidArgument: it is no directory.
    """
    with AgentWorkspace("tool", root=root) as workspace:
        yield workspace
