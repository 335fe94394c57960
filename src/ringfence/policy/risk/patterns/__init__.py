"""What is known about each language: one file per language, one row per pattern, each with its reason."""
