"""Secrets that are known by what stands before them: a name, a header, the parts of a URL.

Every pattern is bounded and has a word that is looked for first, so that hostile text costs time in proportion to its
length, and ordinary text next to nothing.
"""

import re
from functools import cache
from typing import Final

from ringfence.dataclass import dataclass

# A value as it follows a name: quoted, or one word. Not a reference such as `$TOKEN` or `{{ token }}`, not a call such
# as `get_token()`, not a type or a constant: these say where a secret comes from, and hold none. Possessive, so that
# the end of a call is not matched by giving characters back.
_CONSTANT = (
    r"(?!(?:None|null|nil|undefined|true|false|str|string|int|bool|bytes|number|any|optional|required)(?![\w-])"
    r"|(?:os\.|process\.env|self\.|args\.|config\.|settings\.)"
    # The type of a parameter: `token: Token`.
    r"|(?-i:(?:[A-Z][a-z]{1,16}){0,3}(?:Token|Secret|Password|Credentials?|Key))(?:[,)|]|[ ][=|]))"
)
_WORD = r"""(?![$<{%*\[(=~!])""" + _CONSTANT + r"""[^\s'"`&;,()\[\]{}<>|\\]{4,512}+(?![(\[])"""
# Between single quotes `$` is no reference for a shell; only a name alone may be one, where the whole is quoted again.
_QUOTED = (
    r"""(?<=")(?![ $<{%])(?:\\.|[^"\\\n]){1,512}\\?(?=")"""
    r"""|(?<=')(?![ <{%]|\$[({]|\$\w{1,64}')[^'\n]{1,512}(?=')"""
)
_SHELL_WORD = r"""(?:\$?'[^'\n]{0,512}'|"(?:\\.|[^"\\\n]){0,512}"|\\.|[^\s'"\\;&|<>(){}`$]|\$(?![A-Za-z_{('])){1,512}"""
_VALUE = rf"(?:{_QUOTED}|{_WORD})"
_NO_METHOD = (
    r"(?!(?:basic|digest|bearer|none|oauth2?|jwt|ldaps?|saml|oidc|sso|token|password|plain|login|kerberos|gss\w{0,8}|ntlm"
    r"|negotiate|enabled?|disabled?|auto|default|trust|md5|scram\S{0,16}|peer|ident|yes|no|on|off|fail(?:ed)?)\b|[./~])"
)
"""What `auth=` and `pass=` are set to where no secret is meant: a method, a switch, a file."""
_NAME = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]key|credentials?)"
    # Names that go on say something about the secret, not the secret: a count, a file, a type.
    r"(?![_-]?(?:count|limit|length|len|size|type|name|id|file|path|dir|url|uri|ttl|expir\w{1,4}|index|budget|usage"
    r"|stdin|command|cmd|prompt|helper|manager|store|policy|env|var|provider|endpoint|version|format|scopes?)\b)"
    r"(?:[_-]\w{1,32})?(?!\w)"
)


@dataclass(frozen=True, slots=True)
class SecretShape:
    """How one kind of secret looks. The group `keep` stays."""

    name: str
    hints: tuple[str, ...]
    """In lower case; a text that holds none of them is not searched."""
    pattern: str
    why: str

    def take_out(self, text: str) -> str:
        return compiled(self.pattern).sub(rf"\g<keep>[redacted: {self.name}]", text)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """When it is first needed: most processes meet few kinds of secrets, and compiling all takes longer than a run."""
    return re.compile(pattern)


def shape(name: str, hints: str, pattern: str, why: str) -> SecretShape:
    if "(?P<keep>" not in pattern:
        pattern = f"(?P<keep>){pattern}"
    return SecretShape(name, tuple(hints.split()), pattern, why)


BY_NAME: Final = (
    shape(
        "private key",
        "private",
        r"(?s:-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----|\Z))",
        "PEM and OpenPGP; one that has no end in the text is taken out to the end",
    ),
    shape(
        "authorization",
        "authorization bearer",
        r"""(?i:(?P<keep>authorization["']?\s{0,4}[:=]\s{0,4}["']?(?:(?:bearer|basic|token|digest|negotiate)\s{1,4})?+"""
        r"""|(?<!\w)bearer\s{1,4}(?=[^\s'"]{16}))(?![$<{%])[A-Za-z0-9._~+/=:\-]{4,4096})""",
        "HTTP headers, as given to curl and to libraries",
    ),
    shape(
        "URL credentials",
        "://",
        r"(?P<keep>://[^\s/:@'\"]{0,128}:)(?![$<{%])[^\s/@'\"]{1,256}(?=@)",
        "user and host stay: they say where it went",
    ),
    shape(
        "URL credentials",
        "://",
        r"(?<=://)[A-Za-z0-9_\-]{20,256}(?=@)",
        "a token in the place of the user",
    ),
    shape(
        "signature",
        "sig= signature=",
        r"(?i:(?P<keep>[?&;](?:sig|signature|x-amz-signature|x-goog-signature)=)[A-Za-z0-9%+/=_\-]{16,2048}+)",
        "of URLs that let whoever has them in: Azure's shared access, and what Amazon and Google sign",
    ),
    shape(
        "secret",
        "accountkey= accesskey= accesssignature=",
        r"(?i:(?P<keep>(?<![a-z])(?:accountkey|sharedaccesskey|sharedaccesssignature|primarykey|secondarykey)=)"
        r"(?![$<{%])[A-Za-z0-9%+/=_&\-]{16,2048}+)",
        "Azure's connection strings",
    ),
    shape(
        "session",
        "cookie: sessid= sessionid= _session= connect.sid=",
        r"(?i:(?P<keep>(?<![\w-])(?:set-)?cookie:\s{0,4}(?=\S)|(?:phpsessid|jsessionid|sessionid|_session|connect\.sid)=)"
        r"(?![$<{%])[^\s'\"][^'\"\n]{3,2048})",
        "whoever has the cookie is logged in",
    ),
    shape(
        "secret",
        "pass= auth= pat=",
        rf"""(?i:(?P<keep>(?<![a-z])(?:pass|sshpass|auth|pat)=["']?){_NO_METHOD}{_VALUE})""",
        "short names, with a sign only: `PASS: test_x` is what a test says, and `auth: basic` names a method",
    ),
    shape(
        "secret",
        "pass auth",
        rf"""(?i:(?P<keep>["'](?:[a-z]{{1,16}}[_-])?(?:pass|auth)["']\s{{0,4}}:\s{{0,4}}["']){_NO_METHOD}(?:{_QUOTED}))""",
        "the same in JSON and in dictionaries",
    ),
    shape(
        "secret",
        "_key= _dsn= _salt=",
        r"""(?P<keep>(?<![A-Za-z0-9])(?![A-Z0-9_]{0,48}(?:PUBLIC|CACHE|PRIMARY|FOREIGN|SORT|PARTITION)_KEY)[A-Z][A-Z0-9_]{0,48}"""
        rf"""_(?:KEY|DSN|SALT)=["']?)(?=[^\s'"]{{8}}){_VALUE}""",
        "variables in capitals: LICENSE_KEY, SENTRY_DSN; not what a data base or a cache calls a key",
    ),
    shape(
        "secret",
        "-key:",
        r"(?i:(?P<keep>(?<![\w-])(?:[a-z]{1,24}-){1,4}key:\s{0,4})(?![$<{%])[A-Za-z0-9+/=_\-]{16,512}+)",
        "headers: Ocp-Apim-Subscription-Key, X-Functions-Key",
    ),
    shape(
        "secret",
        "pass= password passwd passphrase pwd= secret token _key",
        r"""(?P<keep>(?<![\w.-])(?:[A-Z][A-Z0-9_]{0,48}_|PG|SSH)?"""
        r"""(?:PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|SECRET|TOKEN|(?:API|ACCESS|PRIVATE|SECRET)_KEY)=)"""
        rf"""(?=\S{{4}})(?!"?(?:\$[\w{{(]|[ <{{%*\[(=~!`])|'(?:\$[({{]|\$[A-Z_]{{1,64}}'|[ ]|\[redacted)|\[redacted)"""
        rf"""(?!["']?[\w.]{{1,64}}[(\[])(?i:{_CONSTANT}){_SHELL_WORD}""",
        "variables in capitals, where the value is a word of a shell: with commas, and quoted in parts",
    ),
    shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>{_NAME}["']\][ ]{{0,4}}=[ ]{{0,4}}["'])(?:{_QUOTED}))""",
        "an entry of a dictionary: os.environ['TOKEN'] = ...",
    ),
    shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>{_NAME}["']?(?:=|:[ ]{{0,2}})["']?)(?!=){_VALUE})""",
        "assignments in shells, JSON, YAML, query strings and headers",
    ),
    shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>{_NAME}["']?[ ]{{1,4}}[:=][ ]{{0,4}}["']?)(?:{_QUOTED}|(?=[^\s]{{0,64}}\d){_WORD}))""",
        "the same with blanks around the sign: in code it is often an expression, so one word needs a digit",
    ),
    shape(
        "secret",
        "pass pwd secret token key credential",
        rf"""(?i:(?P<keep>(?<![\w-])--(?:[a-z]{{1,16}}-){{0,2}}{_NAME}[ ]{{1,4}}["']?)(?!-){_VALUE})""",
        "an option with its value as the next word",
    ),
)
"""In this order: a shape that says more comes before one that says less."""
