"""Secrets that a box uses and never holds: placeholders, swapping, scrubbing, signers."""
