"""The walls: what each machine can build, and how a grant becomes one."""
