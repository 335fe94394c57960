"""Which modules a keeper has loaded before the first call: those that `ringfence run` and `ringfence --help` come to.

Loading is all that is done ahead. What a call reads (configuration, policy, PATH, the machine) each child reads anew.
`typer.rich_utils` is left out: it looks at its surroundings when it is loaded.
"""

from contextlib import suppress
from importlib import import_module

MODULES = (
    "ringfence.cli.commands.run",
    "ringfence.cli.commands.check",
    "ringfence.manager.assemble",
    "ringfence.engines.native.engine",
    "ringfence.confinement.choose",
    "rich.console",
    "rich.markdown",
    "rich.panel",
    "rich.table",
)


def load_modules() -> None:
    for name in MODULES:
        with suppress(ImportError):  # left out of this installation: whoever needs it says so
            import_module(name)
