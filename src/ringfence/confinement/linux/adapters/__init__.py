"""Adapters for one command line on Linux: one file for each program that builds the wall."""
