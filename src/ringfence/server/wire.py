"""What travels: every request and answer of the service as a msgspec struct. The OpenAPI document is made of these.

Unknown fields of a request are an error, so that a misspelled limit is not no limit. Times are seconds since the
epoch. What commands print is text where it is UTF-8; else its bytes stand beside it in base64 (`values/plain.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""Of a session: chosen by the caller or by the server, the tenant's own."""
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]
Seconds = Annotated[float, Meta(gt=0, le=7 * 86400)]
Rows = Annotated[int, Meta(ge=1, le=10_000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Text = Annotated[str, Meta(max_length=4 * 1024 * 1024)]
Metadata = dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=1024)]]


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What callers send."""


class Answer(msgspec.Struct, kw_only=True):
    """What the service sends. Clients pass over fields that they do not know."""


# --- errors -----------------------------------------------------------------------------------------------------------


class Problem(Answer):
    """An error (RFC 9457, application/problem+json). `code` is stable; `hint` says what to do."""

    status: int
    code: str
    title: str
    hint: str = ""
    type: str = "about:blank"
    request_id: str = ""
    fields: dict[str, Any] = {}
    """What else the error carries, by the names that `ringfence.errors` has for it."""
    violations: list[dict[str, Any]] = []


class Empty(Answer):
    """Nothing to say: it was done."""


# --- sessions ---------------------------------------------------------------------------------------------------------


class NetworkSpec(Request):
    """What a session may reach, within what its tenant's policy allows; see `ringfence.Network`."""

    allow: list[str] | None = None
    deny: list[str] = []
    publish: list[Port] = []
    ask: bool = False
    inspect: bool = False


class LimitsSpec(Request):
    """Instead of the configured limits; neither the tenant's quota nor the policy can be exceeded."""

    wall_seconds: Annotated[float, Meta(gt=0)] | None = None
    cpu_seconds: Annotated[float, Meta(gt=0)] | None = None
    memory_bytes: Annotated[int, Meta(gt=0)] | None = None
    processes: Annotated[int, Meta(gt=0)] | None = None
    open_files: Annotated[int, Meta(gt=0)] | None = None
    file_bytes: Annotated[int, Meta(gt=0)] | None = None
    output_bytes: Annotated[int, Meta(gt=0)] | None = None
    tmp_bytes: Annotated[int, Meta(gt=0)] | None = None
    disk_bytes: Annotated[int, Meta(gt=0)] | None = None
    files: Annotated[int, Meta(gt=0)] | None = None


class DockerSpec(Request):
    url: str | None = None
    image: str | None = None
    runtime: str | None = None


class EngineSpec(Request):
    docker: DockerSpec


class HostSpec(Request):
    """What is about the server's machine, so that only its owner, by its Unix socket, may say it: the fields of
    `ringfence.SandboxOptions` of the same names."""

    read: list[Path] = []
    write: list[Path] = []
    config: Path | None = None
    python: Path | None = None
    engine: Literal["native"] | EngineSpec | None = None
    requires: list[str] | None = None
    tool: Name | None = None
    mediate_opens: bool = False


class SessionCreate(Request):
    """What is asked of a new session. All of it is optional."""

    id: Id | None = None
    """The caller's own name for it; the server makes one if it is not given."""
    preset: Name | None = None
    """A set of options that the server's configuration names."""
    role: Name | None = None
    """In the policy; the tenant's, or one of those that the tenant may choose."""
    ttl_seconds: Seconds = 3600.0
    """It ends so long after it was made or extended."""
    metadata: Metadata = {}
    network: list[str] | NetworkSpec | Literal["off"] | None = None
    secrets: list[Name] = []
    """Names of those that the tenant may use; boxes get placeholders, never the secrets."""
    env: dict[str, str] = {}
    limits: LimitsSpec | None = None
    deny: list[str] = []
    read_only: bool = False
    workspace: Path | None = None
    """A directory of the server's machine, below one that the tenant may use; else the session has one of its own."""
    shadow: bool = False
    """Whether commands change a shadow of the workspace, which is looked at and committed by hand."""
    security_mode: Literal["permissive", "strict"] | None = None
    trace: Literal["off", "changes", "reads", "full"] | None = None
    preload: list[str] = []
    policy: Annotated[str, Meta(max_length=256 * 1024)] | None = None
    """A policy as YAML, which can only tighten the tenant's."""
    once: bool = False
    """Whether it is for a single call, so that its wall follows from that call alone."""
    host: HostSpec | None = None


class Session(Answer):
    id: str
    state: Literal["open", "lost"]
    """`lost`: the server was restarted; its box is gone, its files are there."""
    created_at: float
    expires_at: float
    metadata: Metadata = {}
    preset: str | None = None
    role: str | None = None
    agent_id: str | None = None
    """The name of the token that made it."""
    workspace: str = ""
    """The path that its commands see."""
    shadow: str | None = None
    """Its shadow's id, if it has one."""
    published: dict[str, str] = {}
    """Servers in the box, by their port: where this service passes requests on to them."""
    contexts: list[list[str]] = []
    """[language, name] of interpreters and shells that keep a state."""
    idle_seconds: float = 0.0
    wall: dict[str, Any] | None = None
    """The wall that stands; null before the first command."""
    notes: list[str] = []


class SessionPage(Answer):
    items: list[Session]
    next_cursor: str | None = None
    """Give it as `cursor` to go on; null at the end."""


class SessionExtend(Request):
    ttl_seconds: Seconds
    """From now."""


class SessionFork(Request):
    id: Id | None = None
    ttl_seconds: Seconds = 3600.0
    metadata: Metadata = {}


class SnapshotCreate(Request):
    name: Id


class SnapshotRestore(Request):
    name: Id


class Snapshot(Answer):
    name: str
    created_at: float
    files: int
    size_bytes: int


class SnapshotPage(Answer):
    items: list[Snapshot]


# --- executions -------------------------------------------------------------------------------------------------------


class TerminalSize(Request):
    rows: Rows = 24
    columns: Rows = 80


class FileContent(Request):
    """The content of a file that goes along: text, or bytes in base64."""

    text: str | None = None
    base64: str | None = None


class ExecutionCreate(Request):
    """One thing to run: exactly one of `command`, `argv` and `code`."""

    command: Text | None = None
    """For the shell."""
    argv: list[Text] | None = None
    """A program and its arguments."""
    code: Text | None = None
    language: Annotated[str, Meta(max_length=32)] = "python"
    """Of `code`."""
    context: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """The interpreter or shell that keeps its state under this name."""
    cwd: Path | None = None
    env: dict[str, str] = {}
    stdin: Text | None = None
    stdin_base64: Text | None = None
    timeout_seconds: Seconds | None = None
    output_limit_bytes: Annotated[int, Meta(gt=0)] | None = None
    overflow: Literal["stop", "keep-ends"] = "stop"
    keep_background: bool = False
    files: dict[Annotated[str, Meta(min_length=1, max_length=4096)], FileContent] = {}
    """Written into the workspace before it runs."""
    collect: bool | None = None
    """Whether files that it made are in the result; by default only without a session."""
    background: bool = False
    """Whether the answer comes at once and it goes on without its caller, until it ends or the session does."""
    interactive: bool = False
    """Whether its input stays open, for `stdin`; a command or argv only."""
    terminal: TerminalSize | None = None
    """Whether it has a terminal; a command or argv only."""
    typed_by_person: bool = False
    """Whether only a person writes to its input (docs/policy.md); needs the scope `approve`."""


class Execution(Answer):
    id: str
    session_id: str | None
    state: Literal["running", "ended"]
    kind: Literal["command", "argv", "code"]
    shown: str
    """What runs, as a person would read it."""
    started_at: float
    ended_at: float | None = None
    is_background: bool = False
    has_terminal: bool = False
    takes_input: bool = False
    result: dict[str, Any] | None = None
    """`Result.to_dict()` of the library: ending, output, usage, violations, files; null while it runs."""
    problem: Problem | None = None
    """Why there is no result, though it has ended."""


class ExecutionPage(Answer):
    items: list[Execution]
    next_cursor: str | None = None


class SignalSend(Request):
    signal: Annotated[int, Meta(ge=1, le=64)] | Annotated[str, Meta(pattern="^SIG[A-Z0-9]{2,10}$")]
    """Such as 2 or SIGINT; goes to its process group."""


class ContextRef(Request):
    context: Annotated[str, Meta(min_length=1, max_length=64)] = "main"
    language: Annotated[str, Meta(max_length=32)] = "python"


class Interrupted(Answer):
    was_running: bool


class OutputEvent(Answer):
    """A piece of output: `text` where it is UTF-8, else `base64`."""

    stream: Literal["stdout", "stderr"]
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class GapEvent(Answer):
    """Output that this listener was too late for; the result has what is kept."""

    dropped_bytes: int


# --- files ------------------------------------------------------------------------------------------------------------


class FileInfo(Answer):
    path: str
    kind: str
    size_bytes: int
    mode: int
    modified_at: float
    uid: int
    gid: int
    links: int
    inode: int
    target: str | None = None


class FileList(Answer):
    items: list[FileInfo]
    next_cursor: str | None = None


class RealPath(Answer):
    path: str


class FileMove(Request):
    source: Path
    target: Path


class DirectoryCreate(Request):
    path: Path
    mode: Annotated[int, Meta(ge=0, le=0o777)] | None = None
    parents: bool = False
    exist_ok: bool = False


# --- who asks ---------------------------------------------------------------------------------------------------------


class Me(Answer):
    """Who the service takes the caller for."""

    tenant: str
    token: str
    """Its name; `socket` for the owner of the server on its Unix socket."""
    scopes: list[str]
    expires_at: float | None = None
    csrf_token: str | None = None
    """Of a login by cookie: what `Ringfence-CSRF` has to be on requests that change something."""


class Health(Answer):
    status: Literal["ok", "starting", "stopping"]
    version: str
    checks: dict[str, str] = {}


# --- questions --------------------------------------------------------------------------------------------------------


class Question(Answer):
    """What a person is asked. `command` and `details` are what an agent wrote: text, never markup."""

    id: str
    session_id: str
    state: Literal["open", "answered"]
    asked_at: float
    expires_at: float
    request_hash: str
    command: str
    reasons: list[dict[str, Any]]
    """Of each vote: verdict, rule, why, allow_by, place."""
    spans: list[list[int]]
    """[start, end] of the stretches of `command` that the votes are about, in characters."""
    risk: str
    may_remember: bool
    """Whether `yes_for_session` is offered."""
    details: list[list[str]]
    """[name, value] of all else that would run or be seen."""
    policy_lines: list[str]
    """What in a policy would allow it without asking."""
    answered_at: float | None = None
    choice: str | None = None
    by: str | None = None
    how: str | None = None
    comment: str | None = None


class QuestionPage(Answer):
    items: list[Question]
    next_cursor: str | None = None


class QuestionAnswer(Request):
    choice: Literal["no", "yes", "yes_for_session", "yes_as_policy"]
    """`yes_as_policy`: yes for once, with a note that the policy should say so (see `policy_lines`)."""
    request_hash: Annotated[str, Meta(min_length=1, max_length=128)]
    """The question's, as it was shown."""
    comment: Annotated[str, Meta(max_length=2000)] = ""
    """Goes to whoever asked, and into the record."""


class QuestionQuery(Request):
    state: Literal["open", "all"] = "open"
    cursor: Annotated[str, Meta(max_length=256)] | None = None
    limit: Limit = 100


# --- tokens and logins ------------------------------------------------------------------------------------------------


class TokenCreate(Request):
    name: Name
    scopes: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(min_length=1, max_length=16)]
    lives_seconds: Annotated[float, Meta(gt=0, le=10 * 365 * 86400)] | None = None


class Token(Answer):
    id: str
    name: str
    scopes: list[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    """To the minute."""


class NewToken(Answer):
    token: str
    """Shown here, and never again."""
    info: Token


class TokenPage(Answer):
    items: list[Token]


class LoginCreate(Request):
    """Exactly one of both."""

    token: Annotated[str, Meta(max_length=128)] | None = None
    code: Annotated[str, Meta(max_length=128)] | None = None
    """Of the address that `ringfence serve` printed; good once."""


# --- queries ----------------------------------------------------------------------------------------------------------


class PageQuery(Request):
    cursor: Annotated[str, Meta(max_length=256)] | None = None
    limit: Limit = 100


class PathQuery(Request):
    path: Path


class ListQuery(Request):
    path: Path = "."
    cursor: Annotated[str, Meta(max_length=4096)] | None = None
    limit: Limit = 1000


class StatQuery(Request):
    path: Path
    follow: bool = True


class WriteQuery(Request):
    path: Path
    mode: Annotated[int, Meta(ge=0, le=0o777)] | None = None
    append: bool = False
    parents: bool = False


class ReadQuery(Request):
    path: Path
    limit: Annotated[int, Meta(gt=0)] | None = None
    """How large it may be."""


class RemoveQuery(Request):
    path: Path
    recursive: bool = False


class EndQuery(Request):
    keep_files: bool = field(default=False)


class StdinQuery(Request):
    close: bool = False


class SocketAnswer(QuestionAnswer, kw_only=True):
    """An answer over the WebSocket of events."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]


# --- shadows ----------------------------------------------------------------------------------------------------------


class Change(Answer):
    kind: str
    path: str
    source: str | None
    """Of one that was renamed: its old name."""
    is_binary: bool
    refused: str | None
    """Why it is never carried over."""
    lines_added: int
    lines_removed: int


class ChangePage(Answer):
    items: list[Change]
    digest: str
    """Of the changes as they are; a commit names it."""


class Hunk(Answer):
    old_start: int
    new_start: int
    lines: list[str]


class FileHunks(Answer):
    path: str
    mark: str
    hunks: list[Hunk]


class HunkChoice(Request):
    path: Path
    mark: Annotated[str, Meta(max_length=128)]
    numbers: list[int]
    """Of the hunks, from 0 on, in the order of `get_hunks`."""


class CommitCreate(Request):
    digest: Annotated[str, Meta(max_length=128)]
    """Of `list_changes`: what has become different since is not carried over."""
    paths: list[Path] | None = None
    """Which; all if neither these nor hunks are given."""
    hunks: list[HunkChoice] = []
    merge: bool = False
    """Whether text that the project changed too is merged."""


class CommitRefusal(Answer):
    path: str
    why: str
    rule: str
    allow_by: str


class Committed(Answer):
    applied: list[str]
    merged: list[str]
    refused: list[CommitRefusal]
    conflicts: list[CommitRefusal]


# --- judging ----------------------------------------------------------------------------------------------------------


class CheckCreate(Request):
    """One of `command`, `argv`, `code`, `host` and `path`."""

    session_id: Id | None = None
    """By what holds in it; else what would hold in a new one, with `role` and `policy`."""
    role: Name | None = None
    policy: Annotated[str, Meta(max_length=256 * 1024)] | None = None
    command: Text | None = None
    argv: list[Text] | None = None
    code: Text | None = None
    language: Annotated[str, Meta(max_length=32)] = "python"
    cwd: Path | None = None
    env: dict[str, str] = {}
    host: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    port: Port | None = None
    path: Path | None = None
    write: bool = False


class Vote(Answer):
    verdict: str
    rule: str
    why: str
    allow_by: str
    source: str
    """The file that holds the rule; empty for a built-in one."""
    line: int | None
    span: list[int] | None
    """[start, end] of the stretch of the text that it is about, in characters."""


class Checked(Answer):
    verdict: str
    """`allow`, `ask` or `deny`."""
    votes: list[Vote]
    """The deciding one first."""


class ViolationQuery(Request):
    session_id: Id | None = None
    at_least: Literal["low", "medium", "high", "critical"] = "low"
    since: float | None = None
    text: Annotated[str, Meta(max_length=256)] | None = None
    limit: Limit = 100


class ViolationPage(Answer):
    items: list[dict[str, Any]]
    total: int
    by_type: dict[str, int]
    by_severity: dict[str, int]


class Policies(Answer):
    sources: list[str]
    roles: list[str]
    tools: list[str]
    role: str | None
    """The tenant's."""
    usable_roles: list[str]
    """Those that a session may choose."""


class PolicyText(Request):
    text: Annotated[str, Meta(max_length=256 * 1024)]


class PolicyExplain(Request):
    tool: Name = "shell_exec"
    role: Name | None = None
    text: Annotated[str, Meta(max_length=256 * 1024)] | None = None
    """A policy that would tighten the tenant's."""


class PolicyReplay(Request):
    text: Annotated[str, Meta(max_length=256 * 1024)]
    """A policy in the place of the tenant's."""
    since: Annotated[str, Meta(max_length=40)] | None = None
    """RFC 3339, UTC; a week ago if it is not given."""


class Otherwise(Answer):
    run: str
    timestamp: str
    command: str
    before: str
    after: str
    rule: str
    why: str


class Replayed(Answer):
    looked_at: int
    passed_over: int
    """Code, of which the record has only a hash, and tools that the policy does not know."""
    items: list[Otherwise]


class PolicyFault(Answer):
    message: str
    hint: str
    line: int | None
    column: int | None


class Validated(Answer):
    is_valid: bool
    faults: list[PolicyFault] = []
    remarks: list[str] = []
    roles: list[str] = []
    tools: list[str] = []


class Explained(Answer):
    tool: str
    role: str | None
    terms: dict[str, Any]


# --- the record -------------------------------------------------------------------------------------------------------


class AuditFilter(Request):
    session_id: Annotated[str, Meta(max_length=256)] | None = None
    agent_id: Annotated[str, Meta(max_length=256)] | None = None
    tool: Annotated[str, Meta(max_length=64)] | None = None
    result: Annotated[str, Meta(max_length=64)] | None = None
    since: Annotated[str, Meta(max_length=40)] | None = None
    """RFC 3339, UTC."""
    until: Annotated[str, Meta(max_length=40)] | None = None
    text: Annotated[str, Meta(max_length=256)] | None = None


class AuditQuery(AuditFilter, kw_only=True):
    cursor: Annotated[str, Meta(max_length=256)] | None = None
    limit: Limit = 100


class RecordPage(Answer):
    items: list[dict[str, Any]]
    """docs/audit.md has the fields."""
    next_cursor: str | None = None


class Verified(Answer):
    is_whole: bool
    records: int
    files: int
    says: str
    last_seq: int = 0
    last_hash: str = ""
    signed_seq: int = 0


class Pools(Answer):
    tenants: dict[str, dict[str, dict[str, Any]]]
    """By tenant and tools: where the boxes are."""
    sessions: int
    executions: int


class ArchiveQuery(Request):
    path: Path = "."
    form: Literal["tar", "tar.gz", "zip"] | None = None
    """Of a download `tar.gz` if not given; of an upload what its first bytes say."""


class Unpacked(Answer):
    files: int
    total_bytes: int


class WatchQuery(Request):
    path: Path = "."
    recursive: bool = False


class PortLink(Answer):
    url: str
    """For a browser; good once."""
    expires_at: float


class SocketCommand(Request):
    type: Literal["resize", "signal", "eof"]
    rows: Rows = 24
    columns: Rows = 80
    signal: Annotated[int, Meta(ge=1, le=64)] | Annotated[str, Meta(pattern="^SIG[A-Z0-9]{2,10}$")] = 15


# --- a session as the library shows it --------------------------------------------------------------------------------


class SessionState(Answer):
    """What `ringfence.Sandbox` says about itself; objects as `ringfence.values.carried` has them."""

    sandbox_id: str
    engine: str
    who: dict[str, Any]
    grant: dict[str, Any]
    wall: dict[str, Any] | None
    usage: dict[str, Any]
    published: dict[str, str]
    notes: list[str]
    contexts: list[list[str]]
    is_active: bool
    idle_seconds: float


class SessionCheck(Request):
    """What would be decided about a path or a host: exactly one of `path` and `host`."""

    path: Path | None = None
    write: bool = False
    host: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    port: Port | None = None


class SessionChecked(Answer):
    reason: dict[str, Any]


class SessionDecide(Request):
    """Something that would run: exactly one of `command`, `argv` and `code`."""

    command: Text | None = None
    argv: list[Text] | None = None
    code: Text | None = None
    language: Annotated[str, Meta(max_length=32)] | None = None
    context: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    cwd: Path | None = None
    env: dict[str, str] = {}
    live_input: bool = False


class Decided(Answer):
    decision: dict[str, Any]
    """Every vote, with rule, place and what would change it; and the grant that it would run with."""
    refused_inside: list[dict[str, Any]]
    """What the wall would refuse of the paths that the command names."""
