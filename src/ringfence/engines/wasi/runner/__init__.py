"""What runs inside a box and runs modules there: shown to it as /__runner__, never imported by the manager.

The files use the standard library only, and little of it: a runner is started for every command that none waits for.
"""
