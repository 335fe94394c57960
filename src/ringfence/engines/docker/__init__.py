"""The Docker engine: one hardened container per box, with our own helper as its first process."""
