"""Hooks of coding agents: what a client is about to run is judged, and rewritten so that it runs inside the wall."""
