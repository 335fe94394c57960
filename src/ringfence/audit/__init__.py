"""The record of what was asked, decided, run and how it ended."""
