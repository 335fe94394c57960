"""Engines: each makes boxes in which requests run."""
