"""What a box may reach, and what came of a request: the values that policy, proxy, engines and journal share.

A box without a `NetworkGrant` has no network. With one it has a proxy outside as its only neighbour: nothing is reached
by any other way, and the proxy reaches nothing that no rule allows (docs/egress.md).
"""

from enum import StrEnum

from ringfence.dataclass import dataclass, field

WEB_PORTS = (80, 443)
"""What a rule without ports means: a name alone is written for the web, not for remote shells and databases."""
SSH_PORT = 22
GIT_READ = ("GIT-UPLOAD-PACK", "GIT-UPLOAD-ARCHIVE")
"""What is asked of a git server by SSH: the programs that it would run there, as methods."""
GIT_PUSH = ("GIT-RECEIVE-PACK",)
PROXY_PORT = 3128
"""Where the proxy listens inside a box, at 127.0.0.1 and, as every captured port, at every other address."""


class NetworkDoor(StrEnum):
    """How a request came to the proxy."""

    CONNECT = "connect"
    HTTP = "http"
    """A URL with a host, in plain HTTP."""
    SOCKS = "socks"
    TRANSPARENT = "transparent"
    """A connection that the box's routes led to us."""
    DNS = "dns"
    TOOL = "tool"
    """Ours: `fetch` and `http`, outside the box."""


class Inspection(StrEnum):
    """Whether the proxy looks into TLS."""

    WHERE_NEEDED = "where needed"
    """Where methods, paths or a secret cannot be held otherwise."""
    ALWAYS = "always"
    NEVER = "never"
    """Opaque: for clients that pin certificates, and servers that want the client's. No secret is ever put in."""


class Asking(StrEnum):
    """When a person is asked about what a rule allows."""

    NEVER = "never"
    EACH = "each"
    """Every request; a yes may be remembered for the session."""
    CHANGES = "changes"
    """Methods other than GET, HEAD and OPTIONS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much may be sent. None is no limit of its own."""

    body_bytes: int | None = None
    """Of one request."""
    requests_per_minute: int | None = None
    connections: int | None = None
    """At the same time."""
    total_bytes_out: int | None = None
    """Of everything that leaves, as long as the box lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRule:
    """Hosts that may be reached, and how. `host` is a pattern that `policy.hosts.HostRule` understands."""

    host: str
    ports: tuple[int, ...] = ()
    """`WEB_PORTS`, if there are none."""
    methods: tuple[str, ...] = ()
    """In capitals; any, if there are none."""
    paths: tuple[str, ...] = ()
    """Globs such as `/simple/**`; `*` stops at a slash. Any, if there are none."""
    raw: bool = False
    """Whether bytes may pass that are neither TLS nor HTTP: databases, SSH."""
    ssh_user: str = ""
    """If not empty, SSH of this user is ended at the proxy: `methods` are git's (`GIT_READ`, `GIT_PUSH`), `paths` are
    repositories without `.git`. Nothing else is spoken on these ports."""
    inspection: Inspection = Inspection.WHERE_NEEDED
    asking: Asking = Asking.NEVER
    private: tuple[str, ...] = ()
    """Networks of addresses that are not global and may be reached all the same, such as `10.1.0.0/16`."""
    budget: Budget = field(default_factory=Budget)
    written: str = ""
    """As somebody wrote it: `--allow pip`, `network.allow[2]`."""
    place: str = ""
    """`policy.yaml:12`; empty where there is no file."""

    @property
    def needs_inspection(self) -> bool:
        """Whether what it says cannot be held without looking into TLS."""
        return self.inspection is Inspection.ALWAYS or bool(
            self.methods or self.paths or self.asking is Asking.CHANGES or self.budget.body_bytes is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyRule:
    """Hosts or ports that are never reached; beats every rule that allows."""

    host: str = "*"
    ports: tuple[int, ...] = ()
    """Every port, if there are none."""
    written: str = ""
    place: str = ""


class SecretPlace(StrEnum):
    """Where in a request a secret may go."""

    HEADER = "header"
    BASIC = "basic"
    QUERY = "query"
    PATH = "path"
    BODY = "body"
    WEBSOCKET = "websocket"
    SSH = "ssh"
    """None in a request: a key that signs in to a git server (`NetworkRule.ssh_user`), outside."""


class SecretStyle(StrEnum):
    """What of a secret is inside a box."""

    INJECT = "inject"
    """Nothing of it is inside; the proxy adds it."""
    PLACEHOLDER = "placeholder"
    """Inside is a value of the same shape that is worth nothing; the proxy replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretGrant:
    """A secret that the proxy uses for a box, by name: its value is in no value of ours but the proxy's memory."""

    name: str
    hosts: tuple[str, ...]
    """Patterns as in rules. A secret opens no host by itself."""
    places: tuple[SecretPlace, ...] = (SecretPlace.HEADER, SecretPlace.BASIC)
    style: SecretStyle = SecretStyle.PLACEHOLDER
    header: str = ""
    """For `inject`: the header that it is put into, `Authorization` if not said."""
    template: str = "Bearer {}"
    """For `inject`: what the header holds."""
    variable: str = ""
    """The variable that holds the placeholder inside, such as `GH_TOKEN`."""
    placeholder: str = ""
    """What stands for it inside; made when the box is opened, same prefix and length as the value."""
    signer: str = ""
    """Empty, or `aws-sigv4`, `oauth-refresh`, `oauth-client`, `github-app`, `google-service-account`."""
    quoted_to: tuple[str, ...] = ()
    """Hosts to which the placeholder may go in a body, as it is: those of a model, which is told what commands print.
    Else one command that prints its environment would end every conversation after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkGrant:
    """All that a box may reach. Deny beats allow; no rule is no network."""

    rules: tuple[NetworkRule, ...] = ()
    denied: tuple[DenyRule, ...] = ()
    ask_unlisted: bool = False
    """Whether a person is asked about a host that no rule names; else it is refused."""
    inspect_all: bool = False
    """Whether nothing passes unseen: a client that cannot be inspected is refused."""
    budget: Budget = field(default_factory=Budget)
    """Of the whole box."""
    secrets: tuple[SecretGrant, ...] = ()
    publish: tuple[tuple[int, int], ...] = ()
    """(port inside, port of 127.0.0.1 outside; 0 is any free one)"""
    reach: tuple[int, ...] = ()
    """Ports of the host's own loopback that the box reaches at 127.0.0.1."""
    learn: bool = False
    """`net learn`: what no rule denies is allowed and recorded."""

    @property
    def captured_ports(self) -> tuple[int, ...]:
        """Ports of any address that lead to the proxy, besides its own and DNS."""
        named = {port for rule in self.rules for port in (rule.ports or WEB_PORTS)}
        return tuple(sorted({*WEB_PORTS, *named, *self.reach}))

    @property
    def ends_ssh(self) -> bool:
        """Whether SSH ends at the proxy, so that clients have to know its key."""
        return any(rule.ssh_user for rule in self.rules)

    @property
    def inspects(self) -> bool:
        """Whether any connection may be looked into, so that clients have to trust our authority."""
        return self.inspect_all or bool(self.secrets) or any(rule.needs_inspection for rule in self.rules)


NetworkAsking = Asking
NetworkBudget = Budget
"""Their names among everything that the package exports, where `Asking` is another one."""
