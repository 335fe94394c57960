"""Takes secrets out of text before it goes into the journal: the one place where that is done.

A secret is known by its shape (`SHAPES`), by the name of the variable through which it was handed to the box, or by
a pattern that somebody configured. What is taken out leaves a mark that says what it was; the hash of the whole text,
which the record keeps, still lets an auditor match a text that they have.

Every pattern is bounded and starts with a word that is looked for first, so that hostile text costs time in proportion
to its length, and ordinary text next to nothing.

What this does not protect against: a secret without a known shape that nobody named, one that is split or encoded (in
base64, letter by letter), and one so weak that it can be guessed and compared with the hash of the whole command.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

TEXT_MAX: Final = 4096
"""Characters of one text that a record keeps."""
NAME_MAX: Final = 512
"""Characters of a text that explains, such as a rule."""
_WINDOW: Final = 2 * TEXT_MAX
"""How much is looked at: what is taken out makes room for more."""
_VALUE_MIN: Final = 6
"""A shorter value of a variable, such as `1` or `true`, is no secret and would be found everywhere."""

# A value as it follows a name: quoted, or one word. Not a reference such as `$TOKEN` or `{{ token }}`, not a call such
# as `get_token()`, not a type or a constant: these say where a secret comes from, and hold none. Possessive, so that
# the end of a call is not matched by giving characters back.
_CONSTANT = (
    r"(?!(?:None|null|nil|undefined|true|false|str|string|int|bool|bytes|number|any|optional|required)\b"
    r"|(?:os\.|process\.env|self\.|args\.|config\.|settings\.))"
)
_WORD = r"""(?![$<{%*\[(=~!])""" + _CONSTANT + r"""[^\s'"`&;,()\[\]{}<>|\\]{4,512}+(?![(\[])"""
_QUOTED = r"""(?<=")(?![ $<{%])[^"\n]{1,512}(?=")|(?<=')(?![ $<{%])[^'\n]{1,512}(?=')"""
_VALUE = rf"(?:{_QUOTED}|{_WORD})"
_NAME = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
    # Names that go on say something about the secret, not the secret: a count, a file, a type.
    r"(?![_-]?(?:count|limit|length|len|size|type|name|id|file|path|dir|url|uri|ttl|expir\w{1,4}|index|budget|usage)\b)"
    r"(?:[_-]\w{1,32})?(?!\w)"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How one kind of secret looks. The group `keep` stays."""

    name: str
    hints: tuple[str, ...]
    """In lower case; a text that holds none of them is not searched."""
    pattern: re.Pattern[str]
    why: str

    def take_out(self, text: str) -> str:
        return self.pattern.sub(rf"\g<keep>[redacted: {self.name}]", text)


def _shape(name: str, hints: str, pattern: str, why: str) -> Shape:
    if "(?P<keep>" not in pattern:
        pattern = f"(?P<keep>){pattern}"
    return Shape(name, tuple(hints.split()), re.compile(pattern), why)


SHAPES: Final = (
    _shape(
        "private key",
        "private",
        r"(?s:-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----|\Z))",
        "PEM and OpenPGP; one that has no end in the text is taken out to the end",
    ),
    _shape(
        "AWS key id",
        "akia asia",
        r"(?<![0-9A-Za-z])(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])",
        "names an account's key; its secret half is found by the name that it is assigned to",
    ),
    _shape(
        "GitHub token",
        "gh github_pat_",
        r"(?<![0-9A-Za-z])(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
        "personal, OAuth, user, server and refresh tokens, and fine-grained ones",
    ),
    _shape(
        "GitLab token",
        "gl",
        r"(?<![0-9A-Za-z])gl(?:pat|dt|rt|cbt|ptt|ft|soat|oas)-[A-Za-z0-9_.\-]{20,255}",
        "personal, deploy, runner, job, trigger, feed, agent and OAuth tokens",
    ),
    _shape(
        "Slack token",
        "xox xapp- hooks.slack.com",
        r"(?<![0-9A-Za-z])(?:xox[abeoprs][-.][A-Za-z0-9.\-]{10,255}|xapp-[A-Za-z0-9\-]{10,255}"
        r"|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,128})",
        "bot, user and app tokens, and web hooks, whose path is the secret",
    ),
    _shape(
        "Anthropic key",
        "sk-ant-",
        r"(?<![A-Za-z0-9_-])sk-ant-[A-Za-z0-9_\-]{16,255}",
        "before OpenAI's, which begin alike",
    ),
    _shape(
        "OpenAI key",
        "sk-",
        r"(?<![A-Za-z0-9_-])sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_\-]{20,255}|[A-Za-z0-9]{32,255})",
        "project, service and old keys; a bare `sk-` with hyphens in it is more likely a name",
    ),
    _shape(
        "Stripe key",
        "k_live_ k_test_",
        r"(?<![0-9A-Za-z])[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}",
        "secret and restricted ones; `pk_` is public",
    ),
    _shape(
        "Google key",
        "aiza ya29.",
        r"(?<![0-9A-Za-z_-])(?:AIza[0-9A-Za-z_\-]{35}|ya29\.[0-9A-Za-z_\-]{20,1024})",
        "API keys and OAuth access tokens",
    ),
    _shape(
        "registry token",
        "npm_ pypi- hf_",
        r"(?<![0-9A-Za-z_-])(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_\-]{50,512}|hf_[A-Za-z0-9]{30,64})",
        "npm, PyPI and Hugging Face: they let somebody publish",
    ),
    _shape(
        "JWT",
        "eyj",
        # One start per word, and no giving back: a text of nothing but `eyJ` is passed once.
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_\-]{8,4096}+\.eyJ[A-Za-z0-9_\-]{8,4096}+(?:\.[A-Za-z0-9_\-]{0,4096}+)?",
        "`eyJ` is how JSON begins in base64",
    ),
    _shape(
        "authorization",
        "authorization bearer",
        r"""(?i:(?P<keep>authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:(?:bearer|basic|token|digest|negotiate)\s{1,4})?+"""
        r"""|(?<!\w)bearer\s{1,4}(?=[^\s'"]{16}))(?![$<{%])[A-Za-z0-9._~+/=:\-]{4,4096})""",
        "HTTP headers, as given to curl and to libraries",
    ),
    _shape(
        "URL credentials",
        "://",
        r"(?P<keep>://[^\s/:@'\"]{0,128}:)(?![$<{%])[^\s/@'\"]{1,256}(?=@)",
        "user and host stay: they say where it went",
    ),
    _shape(
        "URL credentials",
        "://",
        r"(?<=://)[A-Za-z0-9_\-]{20,256}(?=@)",
        "a token in the place of the user",
    ),
    _shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>{_NAME}["']?(?:=|:[ ]{{0,2}})["']?)(?!=){_VALUE})""",
        "assignments in shells, JSON, YAML, query strings and headers",
    ),
    _shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>{_NAME}["']?[ ]{{1,4}}[:=][ ]{{0,4}}["']?)(?:{_QUOTED}|(?=[^\s]{{0,64}}\d){_WORD}))""",
        "the same with blanks around the sign: in code it is often an expression, so one word needs a digit",
    ),
    _shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>(?<![\w-])--(?:[a-z]{{1,16}}-){{0,2}}{_NAME}[ ]{{1,4}}["']?)(?!-){_VALUE})""",
        "an option with its value as the next word",
    ),
    _shape(
        "password",
        "curl",
        rf"""(?P<keep>\s(?:-u|--user)[ =]{{0,2}}["']?[^\s:'"]{{1,64}}:)(?!\d{{1,10}}\b){_WORD}""",
        "of curl's user; other programs mean a group or a date by `-u a:b`",
    ),
    _shape(
        "password",
        "sshpass mysql",
        r"(?P<keep>(?<!\w)(?:sshpass|mysql(?:dump|admin)?)\s(?:[^|;&\n]{0,128}?\s)?-p)(?![$<{% ])[^\s'\"]{1,128}",
        "programs that take it glued to `-p`",
    ),
)
"""In this order: a shape that says more comes before one that says less."""
_GROUPS: Final = tuple(
    (hints, tuple(shape for shape in SHAPES if shape.hints == hints))
    for hints in dict.fromkeys(shape.hints for shape in SHAPES)
)
"""Shapes by what is looked for first, so that it is looked for once."""

_SECRET_NAME: Final = re.compile(
    r"(?i)(?:(?:^|_)pass|password|passwd|passphrase|pwd|secret|token|credential|private|api_?key|access_?key|auth|cookie|session_?key"
    r"|_key|_dsn|_pat)(?:s|_\w*)?$|^(?:key|pat)$"
)
"""Variables whose value is not for the journal, by their name."""


class Redactor:
    """Takes secrets out of texts.

    Args:
        patterns: texts to take out as well; `*` stands for up to 256 characters that are neither blank nor a quote.
        variables: those that are handed to the box: values of the ones with a telling name are taken out.
    """

    __slots__ = ("_patterns", "_values")

    def __init__(self, patterns: Iterable[str] = (), variables: Iterable[tuple[str, str]] = ()) -> None:
        self._patterns = tuple(map(_configured, patterns))
        self._values = tuple(
            sorted(
                {value: name for name, value in variables if is_secret_name(name) and len(value) >= _VALUE_MIN}.items(),
                key=lambda item: -len(item[0]),  # a value may hold another one
            )
        )

    def knowing(self, variables: Iterable[tuple[str, str]]) -> "Redactor":
        """One that knows the values of further variables."""
        more = tuple(variables)
        if not any(is_secret_name(name) for name, _ in more):
            return self
        made = Redactor((), (*((name, value) for value, name in self._values), *more))
        made._patterns = self._patterns
        return made

    @lru_cache(maxsize=1024)  # noqa: B019  a redactor lives as long as its sandbox, and the cache is bounded
    def name(self, text: str) -> str:
        """The same for a text that comes again and again: a path, a rule, a reason."""
        return self.text(text, NAME_MAX)

    def text(self, text: str, length: int = TEXT_MAX) -> str:
        """The text without secrets, and at most so long."""
        if len(text) <= _WINDOW:
            return self._without_secrets(text)[:length]
        window = text[:_WINDOW]
        clean = self._without_secrets(window)
        if clean != window:  # what is near the window's end has moved up
            clean = self._without_secrets(_without_last_word(window))
        return clean[:length]

    def _without_secrets(self, text: str) -> str:
        for value, name in self._values:
            if value in text:
                text = text.replace(value, f"[redacted: {name}]")
        for pattern in self._patterns:
            text = pattern.sub("[redacted: configured]", text)
        lower = text.lower()
        for hints, shapes in _GROUPS:
            for hint in hints:
                if hint in lower:
                    for shape in shapes:
                        text = shape.take_out(text)
                    break
        return text


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def _without_last_word(window: str) -> str:
    """Half a secret has no shape any more."""
    return window[: max(0, *(window.rfind(blank) for blank in " \n\t"))] + " [cut]"


@lru_cache(maxsize=64)
def _configured(pattern: str) -> re.Pattern[str]:
    return re.compile(r"""[^\s'"]{0,256}""".join(map(re.escape, pattern.split("*"))))
