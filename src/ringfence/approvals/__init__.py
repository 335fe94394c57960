"""Asking a person, where the policy says so: the port, and the ways to ask."""
