"""util-linux's `unshare` around one command line, where there is neither bubblewrap nor nsjail.

A shell script that is fixed text runs as root of a new user namespace: it builds a new root in a tmpfs, makes it the
only one, and becomes `unshare` once more, which maps an ordinary user and drops every capability. Paths reach the
script as arguments, never as text of it.

What this does not protect against: the kernel's surface is whole; nothing is limited; run by root, the command is uid 0
outside of its namespace, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from ringfence.confinement.adapter import CommandLine, Mount, rewritten, working_directory
from ringfence.confinement.base import Probe
from ringfence.confinement.linux.adapters.bubblewrap import GUARANTEES
from ringfence.confinement.linux.adapters.system import ENVIRONMENT, KERNEL, links, places
from ringfence.confinement.linux.probe import can_unshare
from ringfence.errors import InitializationFailed

_NEEDED = ("unshare", "mount", "umount", "pivot_root", "setpriv", "setsid", "readlink", "sh", "env")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# The arguments: the directory to start in, then pairs (-r SOURCE TARGET, -w SOURCE TARGET, -l TARGET PATH), then --.
SCRIPT = r"""
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
new=/sys
mount -t tmpfs -o mode=755,nosuid,nodev sandbox $new
mkdir $new/proc $new/dev $new/tmp
start=$1
shift
bind() {
    # Links in what is mounted already may be of an earlier command's making, and would lead to the host's files.
    if [ "$(readlink -m "$new$2")" != "$new$2" ]; then
        echo "ringfence: $2: a link is in the way of what is to be shown there" >&2
        exit 126
    fi
    if [ -d "$1" ]; then mkdir -p "$new$2"; else
        mkdir -p "$new${2%/*}"
        [ -e "$new$2" ] || (set -C && : >"$new$2")
    fi
    mount --bind "$1" "$new$2"
}
while [ "$1" != -- ]; do
    case $1 in
    -r) bind "$2" "$3"; mount -o remount,bind,ro,nosuid,nodev "$new$3" ;;
    -w) bind "$2" "$3"; mount -o remount,bind,nosuid,nodev "$new$3" ;;
    -l) ln -s "$2" "$new$3" ;;
    esac
    shift 3
done
shift
for device in null zero full random urandom; do
    : >$new/dev/$device
    mount --bind /dev/$device $new/dev/$device
done
mount -t proc -o nosuid,nodev,noexec proc $new/proc
for path in @KERNEL@; do
    [ -e $new$path ] || continue
    mount --bind $new$path $new$path
    mount -o remount,bind,ro,nosuid,nodev,noexec $new$path
done
mount -t tmpfs -o mode=1777,nosuid,nodev sandbox $new/tmp
mount -o remount,bind,ro,nosuid,nodev $new
cd $new
pivot_root . .
umount -l .
cd "$start"
exec setsid unshare --user --map-user=1000 --map-group=1000 -- \
    setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all "$@"
""".replace("@KERNEL@", " ".join(KERNEL))


class UnshareAdapter:
    name = "unshare"

    def probe(self) -> Probe:
        missing = [program for program in _NEEDED if shutil.which(program, path=_PATH) is None]
        if missing:
            return Probe(missing=f"there is no {missing[0]}", hint="apt-get install util-linux mount")
        trouble = can_unshare()
        return Probe(missing=trouble, hint="allow user namespaces") if trouble else Probe(GUARANTEES)

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        program = shutil.which("unshare", path=_PATH)
        if program is None:
            raise InitializationFailed("there is no unshare", hint="apt-get install util-linux")
        shown = [word for path in places() for word in ("-r", path, path)]
        shown += [word for path, target in links() for word in ("-l", target, path)]
        shown += [word for mount in mounts for word in _words(mount)]
        variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        namespaces = (
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--net",
            "--ipc",
            "--uts",
        )
        words = (*namespaces, "--", "/bin/sh", "-c", SCRIPT, "sh", working_directory(mounts), *shown, "--")
        return program, (*words, "/usr/bin/env", "-i", *variables, *rewritten((command, *arguments), mounts))


def _words(mount: Mount) -> tuple[str, str, str]:
    return "-w" if mount.writable else "-r", mount.source, os.path.normpath("/" + mount.target.lstrip("/"))
