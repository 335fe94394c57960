"""Holds a box to its limits, by whatever the machine offers, and measures what it uses."""
