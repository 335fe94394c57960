"""Thousands of executions of all kinds with things killed under them: every call is answered, and nothing is left."""
