"""Commands that try to get out, and what must hold on the host afterwards. `python -m tests.attacks` runs them all."""
