"""Puts the parts together and runs requests through them. Start reading at `pipeline`."""
