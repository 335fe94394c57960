"""Tools: what an agent calls."""
