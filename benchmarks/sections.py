"""What is compared with what: calls of the same kind, each kind by itself."""

LIBRARY = "Library: a fresh box for each call"
COMMAND_LINE = "Command line: one program, one command"
SESSION = "Session: one more call in an open box"
CONTAINER = "Container, or a kernel of its own"
BARE = "Without a wall, for comparison"
ORDER = (BARE, LIBRARY, SESSION, COMMAND_LINE, CONTAINER)
