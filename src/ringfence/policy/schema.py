"""Every key of a policy file, as data: its type, what it means, why it is there, and which of two values is tighter.

Reading (`load`), merging (`layer`), the page docs/policy.md and the JSON Schema for editors all follow this table, so
that a new key is one row. A setting may stand in `policies.default`, in a tool and in a role alike.
"""

from collections.abc import Iterator
from enum import Enum, StrEnum
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.policy.settings import ENGINES
from ringfence.values.facts import Strictness
from ringfence.values.grant import Trace
from ringfence.values.guarantee import Guarantee


class Type(Enum):
    """What a key holds; the value says it to a person."""

    FLAG = "true or false"
    SIZE = "a size such as 512MB"
    DURATION = "a time such as 30s"
    CORES = "a number above zero"
    COUNT = "a whole number above zero"
    CHOICE = "one of"
    CHOICES = "a list out of"
    COMMANDS = "a list of commands"
    PATHS = "a list of paths"
    DIRECTORIES = "a list of directories"
    HOSTS = "a list of host names or addresses"
    PORTS = "a list of ports"
    TOOLS = "a list of tools"
    REACHABLE = "a list of hosts, presets or rules"
    NETWORKS = "a list of networks of addresses"
    PUBLISHED = "a list of ports, or PORT:PORT OUTSIDE"
    SECRETS = "a section for each secret, by its name"


class Tighter(Enum):
    """How the values of two layers become one that is at least as tight as either."""

    TRUE = "true is tighter"
    FALSE = "false is tighter"
    LESS = "less is tighter"
    LATER_CHOICE = "the choices are listed from loose to tight"
    EVERY_LIST = "what is allowed has to be in every layer's list"
    BELOW = "only what lies below a directory of the earlier layer's list"
    ANY_LIST = "what is in any layer's list counts"
    SAME = "only one layer may say it"


class RiskLevel(StrEnum):
    """How much a tool can do; from loose to tight."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


HANDLING: Final = {
    RiskLevel.LOW: "direct",  # our own code does it and no program of the agent's choice: nothing to wall in
    RiskLevel.MEDIUM: "sandbox",  # changes things, in places that are known
    RiskLevel.HIGH: "sandbox with limits",  # runs what the agent wrote
    RiskLevel.CRITICAL: "human approval",  # reaches beyond the workspace
}
"""What a risk level leads to (requirement B3)."""

GUARANTEES: Final = tuple(guarantee.value.replace(" ", "_") for guarantee in Guarantee)
"""What a wall can promise, as a policy writes it."""

MODES: Final = ("permissive", "normal", "restricted", "strict")
LANGUAGES: Final = ("python", "javascript", "typescript", "bash")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. `name` has dots where it stands in a section."""

    name: str
    type: Type
    tighter: Tighter
    doc: str
    why: str
    choices: tuple[str, ...] = ()
    example: str = ""

    @property
    def wanted(self) -> str:
        """What it has to hold, for a message."""
        return f"{self.type.value} {', '.join(self.choices)}" if self.choices else self.type.value


def _limit(name: str, kind: Type, doc: str, example: str) -> Key:
    return Key(f"limits.{name}", kind, Tighter.LESS, doc, "one command must not take the machine along", (), example)


_RISKS: Final = tuple(RiskLevel)

SETTINGS: Final[tuple[Key, ...]] = (
    Key(
        "mode",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "A preset; the other keys of the same block change single settings of it.",
        "most files need a start and two or three changes",
        MODES,
        "restricted",
    ),
    Key(
        "security_mode",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "Which code is isolated, where the policy says what that means (`isolation_requires`). `strict`: all that is "
        "not plainly safe, and every session. `permissive`: what looks high or critical. Either way a command runs "
        "behind a wall. Of the policy's mode and the caller's the stricter counts; a file that isolates and names none "
        "means strict.",
        "static analysis advises; the wall decides",
        ("permissive", "strict"),
        "strict",
    ),
    Key(
        "risk_level",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "How much the tool can do: low runs directly, medium in the sandbox, high in the sandbox with limits, critical "
        "only after a person's approval.",
        "the amount of care follows from what can go wrong",
        _RISKS,
        "high",
    ),
    Key(
        "sandbox_enabled",
        Type.FLAG,
        Tighter.TRUE,
        "`false` marks a tool whose work our own code does without a program of the agent's choice. A command runs "
        "behind the wall all the same.",
        "reading one file needs no box",
        (),
        "true",
    ),
    Key(
        "max_execution_time",
        Type.DURATION,
        Tighter.LESS,
        "Wall-clock time of one command; the short form of `limits.wall`.",
        "a hang has to end by itself",
        (),
        "60s",
    ),
    Key(
        "max_memory",
        Type.SIZE,
        Tighter.LESS,
        "Memory of a command and all that it starts; the short form of `limits.memory`.",
        "a leak must not take the machine along",
        (),
        "512MB",
    ),
    Key(
        "max_cpu",
        Type.CORES,
        Tighter.LESS,
        "How many cores a command may keep busy on average: it gets this many CPU seconds for each second of its "
        "`max_execution_time`.",
        "one command must not starve the others",
        (),
        "1.0",
    ),
    _limit("wall", Type.DURATION, "Wall-clock time of one command.", "2m"),
    _limit("cpu", Type.DURATION, "CPU time of a command and all that it starts.", "5m"),
    _limit("memory", Type.SIZE, "Memory of a command and all that it starts.", "2GB"),
    _limit("processes", Type.COUNT, "Processes and threads of a command and all that it starts.", "256"),
    _limit("open_files", Type.COUNT, "Open files of each process.", "1024"),
    _limit("file_size", Type.SIZE, "Size of one file.", "1GB"),
    _limit("output", Type.SIZE, "Bytes of stdout, and as many of stderr.", "16MB"),
    _limit("tmp", Type.SIZE, "Size of each private temporary file system.", "512MB"),
    _limit("disk", Type.SIZE, "How much the writable directories may grow during one command.", "4GB"),
    _limit("files", Type.COUNT, "How many files the writable directories may gain during one command.", "100000"),
    Key(
        "filesystem_access",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "`workspace_only`: the workspace and what `filesystem.read` and `filesystem.write` name. `read_outside`: the "
        "rest of the host may be read, but for what is denied.",
        "an agent needs its project, seldom the machine",
        ("read_outside", "workspace_only"),
        "workspace_only",
    ),
    Key(
        "filesystem.read",
        Type.DIRECTORIES,
        Tighter.BELOW,
        "Further files and directories that may be read.",
        "data and references often lie beside the workspace",
        (),
        "[/srv/datasets]",
    ),
    Key(
        "filesystem.write",
        Type.DIRECTORIES,
        Tighter.BELOW,
        "Further directories that may be written.",
        "build caches and results often lie beside the workspace",
        (),
        "[/srv/results]",
    ),
    Key(
        "filesystem.deny",
        Type.PATHS,
        Tighter.ANY_LIST,
        "Globs that are hidden, added to the built-in blacklist; the wall holds them.",
        "secrets lie inside the workspace too",
        (),
        '["**/*.pem"]',
    ),
    Key(
        "filesystem.mediate_opens",
        Type.FLAG,
        Tighter.TRUE,
        "Hold what is hidden at the moment of opening too: against hard links, renames, and files that the host makes "
        "or saves anew during the run. Every open costs a few microseconds more.",
        "covers are made when a box starts; what comes later is not covered",
        (),
        "true",
    ),
    Key(
        "trace",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "How much is looked at while commands run, so that a refusal has its exact reason: `off`, `changes` (opens for "
        "writing, programs, connections, names and modes, and refused reads of programs such as `cat`), `reads` (every "
        "read that is refused), `full` (every open, also for the record).",
        "an agent that reads why it was refused corrects itself",
        tuple(map(str, Trace)),
        "full",
    ),
    Key(
        "allowed_paths",
        Type.PATHS,
        Tighter.EVERY_LIST,
        "The only paths that a command or a file tool may name. An empty list allows none.",
        "a tool that reads sources needs no more than sources",
        (),
        "[/workspace/**]",
    ),
    Key(
        "denied_paths",
        Type.PATHS,
        Tighter.ANY_LIST,
        "Paths that may not be named, and that the wall hides as `filesystem.deny` does. Beats `allowed_paths`.",
        "an exception is easier to read than a list of everything else",
        (),
        '["/workspace/**/*.key"]',
    ),
    Key(
        "temporary_files",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "Where commands may write below /tmp: `anywhere`, or with `own_prefix` only below /tmp/ringfence and "
        "/tmp/ringfence-agent.",
        "files of a known name in /tmp are where programs of others are tricked",
        ("anywhere", "own_prefix"),
        "own_prefix",
    ),
    Key(
        "allowed_commands",
        Type.COMMANDS,
        Tighter.EVERY_LIST,
        "The only programs that may be run, each with the arguments that it has to begin with. An empty list allows "
        "none.",
        "what is not on the list needs no reason to be refused",
        (),
        "[ls, git status]",
    ),
    Key(
        "denied_commands",
        Type.COMMANDS,
        Tighter.ANY_LIST,
        "Programs that may not be run, or not with these arguments, in whatever order, spelling or wrapper. Beats "
        "`allowed_commands`.",
        "an exception is easier to read than a list of everything else",
        (),
        "[rm -rf, sudo]",
    ),
    Key(
        "supported_languages",
        Type.CHOICES,
        Tighter.EVERY_LIST,
        "The languages that code may be written in.",
        "fewer interpreters are less to go wrong",
        LANGUAGES,
        "[python]",
    ),
    Key(
        "validation.strictness",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "How strictly the text of a command is checked.",
        "an agent that works alone needs a shorter leash than one beside a person",
        tuple(Strictness),
        "normal",
    ),
    Key(
        "validation.sensitive_files",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "What naming a sensitive file in a command leads to; the wall hides those of the blacklist in any case. With "
        "`hide` it hides the others too: settings of git, shells and editors, histories, tokens of registries. Git "
        "does not work in a repository whose settings are hidden.",
        "a word in a command is not yet an access, and what a program opens is in no command",
        ("warn", "block", "hide"),
        "block",
    ),
    Key(
        "engine",
        Type.CHOICE,
        Tighter.SAME,
        "The engine that has to be used.",
        "some work needs an image, some must not have one",
        ENGINES,
        "native",
    ),
    Key(
        "alternatives",
        Type.CHOICES,
        Tighter.SAME,
        "Engines that may be used instead, in this order, where the engine is not available; each has to guarantee at "
        "least as much.",
        "work that has to go on needs a second way, and one that is not weaker",
        ENGINES,
        "[docker]",
    ),
    Key(
        "requires",
        Type.CHOICES,
        Tighter.ANY_LIST,
        "What the wall has to guarantee; a machine that cannot runs nothing. Written with `_` for a space.",
        "a weaker wall must be a decision and not an accident",
        GUARANTEES,
        "[network_off, host_files_hidden]",
    ),
    Key(
        "isolation_requires",
        Type.CHOICES,
        Tighter.ANY_LIST,
        "What the wall has to guarantee, beyond `requires`, for code that is isolated; without it, such code runs "
        "behind the ordinary wall. Which code that is follows from its risk and `security_mode`.",
        "the strongest wall costs time, and risky code is worth it",
        GUARANTEES,
        "[own_kernel]",
    ),
    Key(
        "network_access",
        Type.FLAG,
        Tighter.FALSE,
        "Whether the tool may reach hosts at all, by the lists below. It opens none by itself; a box has no network of "
        "its own, and what is allowed goes through the proxy outside it.",
        "most work needs no network, and a leak does",
        (),
        "false",
    ),
    Key(
        "allowed_domains",
        Type.HOSTS,
        Tighter.EVERY_LIST,
        "The only hosts that may be reached, through the proxy. A name alone means ports 80 and 443. An empty list "
        "allows none.",
        "a leak needs a host to go to",
        (),
        '["*.example.com"]',
    ),
    Key(
        "denied_domains",
        Type.HOSTS,
        Tighter.ANY_LIST,
        "Hosts that may not be reached. Beats every allow-list.",
        "what lies inside a company's network trusts who asks",
        (),
        '["*.internal.example.com"]',
    ),
    Key(
        "network.default",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "What holds for a host that no list names: `none` refuses it. `allow` lets command lines name it and a request "
        "ask for it (`--allow`), and opens nothing by itself.",
        "a list of what is needed is shorter than one of what is not",
        ("allow", "none"),
        "none",
    ),
    Key(
        "network.allowlist.enabled",
        Type.FLAG,
        Tighter.TRUE,
        "Whether the allow-list counts.",
        "a list can be tried out before it holds",
        (),
        "true",
    ),
    Key(
        "network.allowlist.domains",
        Type.HOSTS,
        Tighter.EVERY_LIST,
        "Hosts that may be reached, by name.",
        "as `allowed_domains`, for every tool",
        (),
        "[api.example.com]",
    ),
    Key(
        "network.allowlist.ips",
        Type.HOSTS,
        Tighter.EVERY_LIST,
        "Hosts that may be reached, by address or network.",
        "not everything has a name",
        (),
        "[192.0.2.0/24]",
    ),
    Key(
        "network.denylist.enabled",
        Type.FLAG,
        Tighter.TRUE,
        "Whether the deny-list counts.",
        "a list can be tried out before it holds",
        (),
        "true",
    ),
    Key(
        "network.denylist.domains",
        Type.HOSTS,
        Tighter.ANY_LIST,
        "Hosts that may not be reached, by name or address pattern.",
        "private addresses are where a company's own services are",
        (),
        '["*.internal.*", "10.*"]',
    ),
    Key(
        "network.denylist.ips",
        Type.HOSTS,
        Tighter.ANY_LIST,
        "Hosts that may not be reached, by address or network.",
        "not everything has a name",
        (),
        "[169.254.0.0/16]",
    ),
    Key(
        "network.denylist.ports",
        Type.PORTS,
        Tighter.ANY_LIST,
        "Ports that may not be reached on any host.",
        "remote shells and databases are no web pages",
        (),
        "[22, 5432]",
    ),
    Key(
        "network.allow",
        Type.REACHABLE,
        Tighter.EVERY_LIST,
        "Hosts that may be reached, one list with `allowed_domains`: `host`, `host:port`, a preset such as `pip`, or a "
        "rule with `host` and any of `ports`, `methods`, `paths`, `raw`, `inspect`, `opaque`, `ask`, `private`, "
        "`budget` (docs/egress.md).",
        "reading from a host is not writing to it, and a package index is not one host",
        (),
        "[pip, {host: api.example.com, methods: [GET]}]",
    ),
    Key(
        "network.ask_unlisted",
        Type.FLAG,
        Tighter.FALSE,
        "Whether a person is asked about a host that no rule names, instead of refusing it; never about one that is "
        "denied or private.",
        "nobody knows every host in advance",
        (),
        "false",
    ),
    Key(
        "network.inspect",
        Type.FLAG,
        Tighter.TRUE,
        "Whether every connection is looked into; what cannot be (pinned clients, `opaque`, `raw`) is refused.",
        "what is not looked into can carry anything to a host that is allowed",
        (),
        "true",
    ),
    Key(
        "network.budget.body",
        Type.SIZE,
        Tighter.LESS,
        "The largest body of one request.",
        "a question is short, a copied database is not",
        (),
        "1MB",
    ),
    Key(
        "network.budget.requests_per_minute",
        Type.COUNT,
        Tighter.LESS,
        "Requests of a box in any minute.",
        "a loop must not become an attack on somebody's server",
        (),
        "600",
    ),
    Key(
        "network.budget.connections",
        Type.COUNT,
        Tighter.LESS,
        "Connections of a box at the same time.",
        "the proxy serves other boxes too",
        (),
        "64",
    ),
    Key(
        "network.budget.total_out",
        Type.SIZE,
        Tighter.LESS,
        "Bytes that a box may send in all, as long as it lives.",
        "small requests add up to a large leak",
        (),
        "50MB",
    ),
    Key(
        "network.private",
        Type.NETWORKS,
        Tighter.EVERY_LIST,
        "Addresses that are not global and that an allowed name may have all the same; never loopback, link-local or a "
        "cloud's metadata.",
        "a company's own services have private addresses, and a name may be made to point at them",
        (),
        "[10.20.0.0/16]",
    ),
    Key(
        "network.secrets",
        Type.SECRETS,
        Tighter.EVERY_LIST,
        "Secrets that the proxy puts into requests, by name: `hosts`, `places`, `style`, `header`, `template`, "
        "`variable`, `signer`. Where a secret comes from is for the command line or the person's own sandbox.json, "
        "never for a policy. A secret opens no host.",
        "a key that was never inside cannot be stolen there",
        (),
        "{GH_TOKEN: {hosts: [api.github.com]}}",
    ),
    Key(
        "network.publish",
        Type.PUBLISHED,
        Tighter.EVERY_LIST,
        "Ports of a server in the box that the host reaches at 127.0.0.1: at the one after the colon, or any free one.",
        "a preview has to be looked at from outside",
        (),
        '[5173, "8000:18000"]',
    ),
    Key(
        "network.reach",
        Type.PORTS,
        Tighter.EVERY_LIST,
        "Ports of the host's own loopback that the box reaches at 127.0.0.1.",
        "a database for tests often runs beside the sandbox, and others that must not be reached do too",
        (),
        "[5432]",
    ),
    Key(
        "approvals.ask_for.tools",
        Type.TOOLS,
        Tighter.ANY_LIST,
        "Tools whose every use needs a person's approval.",
        "some tools are rare enough to ask each time",
        (),
        "[shell_exec]",
    ),
    Key(
        "approvals.ask_for.risks",
        Type.CHOICES,
        Tighter.ANY_LIST,
        "Risk levels that need a person's approval: the tool's own level, or what the analysis of the code finds. "
        "`critical` as the tool's own level always does.",
        "a person looks where it matters",
        _RISKS,
        "[high]",
    ),
    Key(
        "approvals.ask_for.patterns",
        Type.COMMANDS,
        Tighter.ANY_LIST,
        "Commands that need a person's approval, written and matched as `denied_commands` are.",
        "some commands are right or wrong only in their context",
        (),
        "[git push]",
    ),
    Key(
        "approvals.timeout",
        Type.DURATION,
        Tighter.LESS,
        "How long to wait for an answer; none in time is a no.",
        "an agent must not hang on a person who is away",
        (),
        "2m",
    ),
    Key(
        "approvals.remember",
        Type.CHOICE,
        Tighter.LATER_CHOICE,
        "Whether a yes counts again for the same request until the session ends.",
        "the tenth identical question is answered without being read",
        ("session", "never"),
        "never",
    ),
)

BY_NAME: Final = {key.name: key for key in SETTINGS}

TOOLS: Final = {
    "file_read": RiskLevel.LOW,  # reads one file of the workspace
    "file_list": RiskLevel.LOW,
    "search": RiskLevel.LOW,
    "file_write": RiskLevel.MEDIUM,  # changes one file of the workspace
    "file_edit": RiskLevel.MEDIUM,
    "file_delete": RiskLevel.MEDIUM,
    "shell_exec": RiskLevel.HIGH,  # runs whatever it is given
    "bash": RiskLevel.HIGH,
    "code_run": RiskLevel.HIGH,
    "run_code": RiskLevel.HIGH,
    "browser_automation": RiskLevel.HIGH,  # pages run code of their own, and see what is typed
    "browser_external": RiskLevel.CRITICAL,  # the same outside any wall, with the rights of whoever runs it
    "fetch": RiskLevel.HIGH,  # what it reads is written by others, and where it goes can carry data out
    "http": RiskLevel.HIGH,
    "system_admin": RiskLevel.CRITICAL,  # changes the machine
    "network_scan": RiskLevel.CRITICAL,  # touches machines of others
}
"""The tools that are known without being defined, with their risk."""

STRUCTURE: Final = {
    "policies": "Everything but the document's own `network` section.",
    "policies.default": "Settings for every tool and role that says nothing else.",
    "policies.tools": "Settings by tool. A tool of your own needs a `risk_level`.",
    "policies.agent_roles": "Settings by role, which replace those of the tools and of `default`.",
    "policies.agent_roles.*.inherits": "The role, or list of roles, whose settings it starts from; `default` for none.",
    "policies.agent_roles.*.tools": "The only tools that the role may use; all, if it is left out.",
    "policies.may_widen": "Settings that a later layer may loosen, by name; without it, later layers only tighten.",
    "network": "The same as `policies.default.network`.",
}
"""The keys that hold the settings, with their meaning."""

RULE_KEYS: Final = {
    Type.COMMANDS: "command",
    Type.PATHS: "path",
    Type.HOSTS: "domain",
}
"""How the rule itself is called where it is written as a section, with `why`, `matches` and `spares` beside it."""


def sections() -> Iterator[str]:
    """The names of the sections that settings stand in, such as `network.allowlist`."""
    seen: dict[str, None] = {}
    for key in SETTINGS:
        parts = key.name.split(".")
        seen.update(dict.fromkeys(".".join(parts[:count]) for count in range(1, len(parts))))
    return iter(seen)
