"""Walls on macOS."""
