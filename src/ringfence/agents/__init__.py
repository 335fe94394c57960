"""Coding agents that run their own shell: the whole agent inside the wall, or a hook that sends its commands there."""
