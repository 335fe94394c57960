"""A browser for agents: the protocol that drives it, what it can be asked to do, and which one does it."""
