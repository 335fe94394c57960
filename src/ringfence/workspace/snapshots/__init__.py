"""Snapshots of a directory: content-addressed, each object kept once, a restart away from nothing."""
