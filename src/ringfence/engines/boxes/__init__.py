"""A box whose first process is our helper, whatever wall an engine has built around it."""
