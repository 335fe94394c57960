"""Options and arguments of programs that carry a secret: one row for each program or family.

`--password X`, `--token=X` and their kin are found by their name, whatever the program (`shapes.py`). Here is what has
no telling name: `-p`, `-a`, `-w`. The same letter is a port, a path or a number elsewhere, so that a row says for which
programs it holds, and whether the value is the next word, glued, or either.
"""

import re
from enum import StrEnum
from typing import Final

from ringfence.audit.shapes import SecretShape, shape

_BETWEEN: Final = r"(?:[^|;&\n]{0,256}?\s)?"
"""Other words of the same command; bounded, so that a text of nothing but program names is passed in time."""
_GIVEN: Final = (
    r"""(?:(?<=")(?![$<{%])[^"\n]{1,512}(?=")|(?<=')(?![$<{%])[^'\n]{1,512}(?=')|(?![$<{%"'\[-])[^\s'"|;&)`]{1,512}+)"""
)
"""A value that stands there: quoted or one word; not a reference to a variable, not the next option."""


class Spot(StrEnum):
    """Where the value stands."""

    NEXT = r"\s{1,4}"
    GLUED = ""
    EITHER = r"[\s=]{0,4}"


def _row(
    hints: str, programs: str, options: str, place: Spot, why: str, *, after: str = "", before: str = ""
) -> SecretShape:
    """A row.

    Args:
        hints: what a text has to hold, in lower case; parts of the programs' names.
        programs: apart by blanks, as are `options`.
        after: a word that has to stand between the program and the option, such as `login`.
        before: what precedes the secret within the value, such as a user and a colon; a pattern.
    """
    program = "|".join(map(re.escape, programs.split()))
    option = "|".join(map(re.escape, options.split()))
    command = rf"{_BETWEEN}{after}\s" if after else ""
    return shape(
        "password",
        hints,
        rf"""(?P<keep>(?<![\w.-])(?:{program})\s{command}{_BETWEEN}(?:{option}){place.value}["']?{before}){_GIVEN}""",
        why,
    )


OPTIONS: Final = (
    _row("sshpass", "sshpass", "-p", Spot.EITHER, "glued or not"),
    _row(
        "mysql maria",
        "mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlsh mariadb mariadb-dump mariadb-admin",
        "-p",
        Spot.GLUED,
        "glued only: after a blank stands the name of a database",
    ),
    _row("mongo", "mongo mongosh mongodump mongorestore mongoexport mongoimport", "-p", Spot.EITHER, "of the user"),
    _row("-cli", "redis-cli valkey-cli keydb-cli", "-a --pass", Spot.NEXT, "of the server"),
    _row("sqlcmd bcp isql tsql", "sqlcmd bcp isql tsql", "-P", Spot.EITHER, "of the user"),
    _row(
        "login",
        "docker podman nerdctl buildah skopeo helm oras crane az cf oc argocd snyk",
        "-p",
        Spot.EITHER,
        "of `login`; elsewhere it is a port",
        after="login",
    ),
    _row("twine", "twine", "-p", Spot.EITHER, "of the repository"),
    _row(
        "curl",
        "curl",
        "-u --user -U --proxy-user",
        Spot.EITHER,
        "the part after the colon; other programs mean a group or a date by `-u a:b`",
        before=r"[^\s:'\"]{1,64}:(?!\d{1,10}\b)",
    ),
    _row(
        "curl",
        "curl",
        "--oauth2-bearer --pass --proxy-pass --tlspassword",
        Spot.EITHER,
        "tokens, keys' passwords",
    ),
    _row(
        "curl",
        "curl",
        "-b --cookie",
        Spot.EITHER,
        "a session; a file's name has no sign",
        before=r"[\w.-]{1,64}=",
    ),
    _row("http xh", "http https xh xhs", "-a --auth", Spot.EITHER, "user and password", before=r"[^\s:'\"]{1,64}:"),
    _row(
        "ldap",
        "ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami ldapcompare",
        "-w",
        Spot.EITHER,
        "binds to the directory",
    ),
    _row(
        "smb rpcclient mount",
        "smbclient smbmap rpcclient smbget",
        "-U --user",
        Spot.EITHER,
        "after the sign",
        before=r"[^\s%'\"]{1,64}%",
    ),
    _row("zip", "zip unzip zipcloak funzip", "-P", Spot.NEXT, "opens the archive"),
    _row("7z rar", "7z 7za 7zr 7zz unrar rar", "-p -hp", Spot.GLUED, "glued only: alone it asks"),
    _row("openssl", "openssl", "-passin -passout -pass", Spot.NEXT, "a password in the clear", before="pass:"),
    _row("openssl", "openssl", "-k -K", Spot.NEXT, "a password, and a key in hexadecimal"),
    _row("ipmi snmp", "ipmitool snmpget snmpwalk snmpset", "-P -A -X", Spot.NEXT, "of a machine's management"),
    _row(
        "htpasswd",
        "htpasswd",
        "-nb -bn -nbB -Bbn -bnB",
        Spot.NEXT,
        "after the user",
        before=r"[^\s'\"]{1,128}\s",
    ),
    _row(
        "htpasswd",
        "htpasswd",
        "-b -cb -bc -bB -cbB",
        Spot.NEXT,
        "after the file and the user",
        before=r"[^\s'\"]{1,128}\s[^\s'\"]{1,128}\s",
    ),
    _row("vault", "vault", "login", Spot.NEXT, "a token as the only word", before=r"(?!token=)"),
    _row(
        "aws_s",
        "aws",
        "aws_secret_access_key aws_session_token",
        Spot.NEXT,
        "of `configure set`, which takes it as the next word",
    ),
    shape(
        "password",
        "_auth _password",
        rf"""(?P<keep>(?<![\w.-])(?:npm|yarn|pnpm)\s{_BETWEEN}[^\s=]{{0,128}}?_(?:authToken|auth|password)[\s=]{{1,4}}["']?)"""
        rf"{_GIVEN}",
        "of `config set`, whose name begins with the registry's address",
    ),
    _row("pypi-token http-basic", "poetry", "pypi-token.pypi", Spot.NEXT, "of `config`"),
    _row("--from-literal", "kubectl oc", "--from-literal", Spot.EITHER, "of a secret", before=r"[^\s=]{1,64}="),
    _row("rdp rdesktop", "xfreerdp wfreerdp xfreerdp3 rdesktop", "/p: -p", Spot.EITHER, "of a remote desktop"),
    _row("gpg", "gpg gpg2", "--passphrase", Spot.EITHER, "short ones too"),
    _row("steghide", "steghide", "-p", Spot.NEXT, "hides a file in an image"),
    _row(
        "keytool jarsigner",
        "keytool jarsigner",
        "-storepass -keypass -srcstorepass -deststorepass -new",
        Spot.NEXT,
        "opens a store of keys",
    ),
    shape(
        "password",
        "chpasswd -stdin --with-token sudo",
        r"""(?P<keep>(?<![\w-])(?:echo|printf)\s{1,4}(?:-\w{1,3}\s{1,4})?["']?(?:[\w.-]{1,64}:)?)(?![$<{%-])"""
        r"""[^\s'"|;&$]{1,256}(?=["']?\s{0,4}\|\s{0,4}(?:[^|;&\n]{0,96}?"""
        r"""(?:chpasswd|--password-stdin|--with-token|passwd\s{1,4}--stdin)|sudo\s{1,4}(?:-\w{1,4}\s{1,4}){0,4}?-S\b))""",
        "handed over on standard input",
    ),
)
