"""Programs that an agent has no business with: other users, the machine, its disks, kernel, firewall and timers."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from ringfence.shell.context import CheckContext, say
from ringfence.shell.mentions import mentions
from ringfence.shell.options import operands
from ringfence.shell.rows import ProgramRow, index, matching, words
from ringfence.values.facts import CheckAnswer, Facts, Finding, Origin, Program

_B, _W = CheckAnswer.BLOCK, CheckAnswer.WARN

ROWS: Final[tuple[ProgramRow, ...]] = (
    ProgramRow(
        "other-user",
        words("sudo su doas pkexec runuser sg newgrp gosu su-exec sudoedit machinectl setuidgid"),
        _B,
        "acts as another user",
    ),
    ProgramRow(
        "accounts",
        words(
            "passwd chpasswd useradd userdel usermod groupadd groupdel groupmod adduser deluser chsh chfn"
            " visudo vipw vigr gpasswd chage newusers pwconv grpconv"
        ),
        _B,
        "changes accounts",
    ),
    ProgramRow("power", words("shutdown reboot halt poweroff telinit kexec"), _B, "stops the machine"),
    ProgramRow("init", words("init"), _B, "changes the run level", first=words("0 1 2 3 4 5 6 s S q")),
    ProgramRow(
        "services",
        words("systemctl service rc-service launchctl initctl update-rc.d chkconfig"),
        _B,
        "changes the system's services",
        spares=words("status is-active is-enabled list-units list-unit-files show cat --version --status-all list"),
    ),
    ProgramRow(
        "system-run", words("systemd-run loginctl hostnamectl timedatectl localectl"), _B, "acts through the system"
    ),
    ProgramRow("mounts", words("mount"), _B, "changes what is mounted", operands=True),
    ProgramRow(
        "mounts",
        words("umount swapon swapoff losetup pivot_root fusermount fusermount3 cryptsetup mdadm dmsetup"),
        _B,
        "changes what is mounted",
    ),
    ProgramRow("namespaces", words("unshare nsenter chroot capsh setpriv"), _B, "leaves or makes a namespace"),
    ProgramRow(
        "namespaces", words("ip"), _B, "runs in another network", first=words("netns vrf"), second=words("exec")
    ),
    ProgramRow("capabilities", words("setcap chattr"), _B, "gives rights to a file"),
    ProgramRow("kernel", words("insmod modprobe rmmod depmod bpftool"), _B, "changes the kernel"),
    ProgramRow(
        "kernel", words("sysctl"), _B, "changes the kernel's settings", options=words("-w -p --write --load --system")
    ),
    ProgramRow(
        "kernel",
        words("sysctl"),
        _B,
        "changes the kernel's settings",
        starts=("kernel.", "net.", "vm.", "fs."),
        spares=words("-n -a --all --values"),
    ),
    ProgramRow("kernel", words("dmesg"), _B, "clears the kernel's log", options=words("-c -C --clear")),
    ProgramRow(
        "firewall",
        words("iptables ip6tables nft ufw firewall-cmd ebtables arptables ipset pfctl iptables-restore"),
        _B,
        "changes the firewall",
    ),
    ProgramRow(
        "network",
        words("ip"),
        _B,
        "changes the network",
        second=words("add del delete set change replace flush up down"),
    ),
    ProgramRow("network", words("ifconfig route tc brctl ethtool iwconfig"), _W, "changes the network", operands=True),
    ProgramRow(
        "disks",
        words(
            "mkfs mkfs.* mke2fs mkswap fdisk sfdisk cfdisk gdisk sgdisk parted wipefs blkdiscard hdparm badblocks"
            " tune2fs resize2fs e2fsck fsck fsck.* lvremove vgremove pvremove lvcreate pvcreate vgcreate"
            " zpool zfs btrfs diskutil partprobe debugfs xfs_repair"
        ),
        _B,
        "changes disks",
    ),
    ProgramRow(
        "timers",
        words("crontab at batch atd anacron"),
        _B,
        "is run later, when nobody looks",
        spares=words("-l -V --version"),
    ),
    ProgramRow("kill-many", words("pkill killall killall5 skill slay"), _W, "kills every process of that name"),
    ProgramRow(
        "trace",
        words("strace ltrace gdb lldb gcore perf bpftrace frida reptyr"),
        _B,
        "looks into another process",
        options=words("-p --pid --attach -p= --attach-pid"),
    ),
    ProgramRow("trace", words("gcore reptyr bpftrace stap"), _B, "looks into another process"),
    ProgramRow(
        "remote",
        words("ssh scp sftp mosh rsh rlogin telnet sshpass autossh ftp tftp ssh-copy-id sshfs slogin"),
        _W,
        "works on another machine",
        spares=words("-V --version -G -Q"),
    ),
    ProgramRow(
        "tunnel",
        words("ngrok cloudflared chisel frpc frps localtunnel bore tailscale wg wg-quick openvpn"),
        _B,
        "opens a way in from outside",
    ),
    ProgramRow(
        "container-host",
        words("docker podman nerdctl"),
        _B,
        "gives the host's files or rights to a container",
        options=words("--privileged --cap-add --device --pid=host --userns=host --ipc=host --security-opt"),
    ),
    ProgramRow(
        "container-host",
        words("docker podman nerdctl"),
        _B,
        "gives the host's files to a container",
        starts=(
            "/:",
            "-v/:",
            "--volume=/:",
            "/etc:",
            "/root:",
            "/var/run/docker.sock",
            "type=bind,source=/,",
            "type=bind,src=/,",
            "/proc:",
            "/dev:",
            "/home:",
            "~/:",
        ),
    ),
    ProgramRow(
        "container",
        words("docker podman nerdctl kubectl oc crictl ctr lxc"),
        _W,
        "acts through another service",
        spares=words("--version version info config ps images help --help logs get describe"),
    ),
    ProgramRow("namespaces", words("flatpak-spawn distrobox-host-exec host-spawn"), _B, "leaves a sandbox"),
    ProgramRow(
        "packages", words("dpkg rpm"), _W, "changes the system's packages", options=words("-i -r -P -e -U --install")
    ),
    ProgramRow(
        "packages",
        words("apt apt-get yum dnf apk pacman zypper brew snap flatpak"),
        _W,
        "changes the system's packages",
        first=words("install remove purge upgrade update dist-upgrade add del autoremove"),
    ),
    ProgramRow(
        "packages",
        words("opkg pkg xbps-install emerge nix-env guix pkgin port ipkg swupd eopkg"),
        _W,
        "changes the system's packages",
        operands=True,
        spares=words("list search info show query --list"),
    ),
    ProgramRow(
        "packages", words("zypper"), _W, "changes the system's packages", options=words("--plus-content --plus-repo")
    ),
    ProgramRow("packages", words("pacman"), _W, "changes the system's packages", options=words("-S -R -U")),
    ProgramRow(
        "alternatives",
        words("update-alternatives ldconfig update-grub grub-install efibootmgr update-initramfs"),
        _B,
        "changes the system",
    ),
    ProgramRow(
        "security",
        words("setenforce aa-disable aa-complain aa-teardown auditctl semanage setsebool"),
        _B,
        "changes the system's protection",
    ),
    ProgramRow("firmware", words("fwupdmgr flashrom ipmitool nvram"), _B, "changes the machine"),
    ProgramRow("clock", words("hwclock ntpdate"), _B, "changes the clock", operands=True),
    ProgramRow("clock", words("date"), _B, "changes the clock", options=words("-s --set")),
    ProgramRow(
        "logs",
        words("logrotate journalctl"),
        _B,
        "removes the system's log",
        options=words("--rotate --vacuum-size --vacuum-time --vacuum-files"),
    ),
    ProgramRow("history", words("history"), _W, "hides what was run", options=words("-c -d -w")),
)
_TABLE: Final = index(ROWS)
_ASKS_ONLY: Final = (("--help",), ("--version",), ("-V",))


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    for program in facts.programs:
        name = program.name
        for row in matching(name, program, _TABLE):
            if tuple(word.text for word in program.argv[1:]) in _ASKS_ONLY:
                break
            why = f"{name}: {row.why}"
            yield from say("denied_command", row.answer, row.rule, why, program.argv[0].span, context)
            break
        if name == "kill" and any(word.text is None for word in program.argv[1:]) and _looks_up(facts):
            why = "kill: every process of that name"
            yield from say("denied_command", CheckAnswer.WARN, "kill-many", why, program.argv[0].span, context)
        if name == "kill" and _kills_too_much(program):
            why = "kill: the first process, or every one that it may"
            yield from say("denied_command", CheckAnswer.BLOCK, "kill", why, program.argv[0].span, context)
        for denied in context.denied_commands:
            if _denied(program, denied):
                why = f"{denied!r} is on the list of denied commands"
                yield from say("denied_command", CheckAnswer.BLOCK, "listed", why, program.span, context)
    if context.denied_commands:
        yield from _named(facts, context)


def _named(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    """A denied program that is not seen to run, but whose name is given to what may run it, or is put together."""
    for part in facts.opaque:
        if part.origin is Origin.BUILT:
            why = f"{part.why}, and there is a list of denied commands"
            yield from say("denied_command", CheckAnswer.WARN, "built", why, part.span, context, firm=True)
            break
    for mention in mentions(facts):
        for denied in context.denied_commands:
            if all(any(fnmatchcase(word, wanted) for word in mention.words) for wanted in denied.split()):
                why = f"{denied!r} is on the list of denied commands, and {mention.why}"
                yield from say("denied_command", CheckAnswer.WARN, "named", why, mention.span, context)


def _looks_up(facts: Facts) -> bool:
    return any(program.name in ("pgrep", "pidof") for program in facts.programs)


def _kills_too_much(program: Program) -> bool:
    found = [word.text for word in operands(program.argv[1:], frozenset(("-s", "-n", "--signal")))]
    return "1" in found or "-1" in found or (len(program.argv) > 2 and program.argv[-1].text == "-1")


def _denied(program: Program, denied: str) -> bool:
    """`rm`, `rm -rf`, `git push`: the name, and every further word among the arguments, options in any bundle."""
    name, *further = denied.split()
    if program.name is None or not (
        fnmatchcase(program.name, name) or ("/" in name and fnmatchcase(program.argv[0].text or "", name))
    ):
        return False
    texts = [word.text for word in program.argv[1:] if word.text is not None]
    bundled = {letter for text in texts if text.startswith("-") and not text.startswith("--") for letter in text[1:]}
    for word in further:
        if word.startswith("-") and not word.startswith("--"):
            if not set(word[1:]) <= bundled and word not in texts:
                return False
        elif not any(fnmatchcase(text, word) for text in texts):
            return False
    return True
