"""Services' own programs that print a secret when they are asked for it: which, and by which words."""

import re
from typing import Final

from ringfence.shell.catalog.base import names as _set

KEEPERS: Final = _set(
    # Hold tokens, keys or passwords of a person or a service, and have a command to show them.
    "aws az gcloud gsutil gh glab hub heroku fly flyctl doctl linode-cli ibmcloud oci kubectl oc k3s helm vault op bw"
    " rbw lpass dashlane doppler infisical chamber credstash envchain teller berglas vercel netlify railway wrangler"
    " render supabase firebase eksctl argocd consul nomad boundary snyk sentry-cli stripe twilio databricks snow"
    " snowsql npm yarn pnpm cargo twine poetry gem pass gopass keyring keepassxc-cli kpcli secret-tool kwallet-query"
    " kwalletcli security docker podman terraform tofu pulumi rails ansible-vault sops git hg dvc rclone gpg gpg2"
    " ssh-keygen systemd-creds keyctl certutil keytool openstack s3cmd mc age rage step tctl tsh teleport aws-vault"
    " saml2aws okta buildkite circleci travis jira linear slack discord ngrok tailscale wg nmcli dbus-send busctl gdbus"
)
_SECRET: Final = (
    r"(?:access-?)?(?:secrets?|tokens?|passwords?|passwd|credentials?|creds|api-?keys?|access-?keys?|private-?keys?|psk"
    r"|kubeconfig|passphrase|keychain|login-password|session-token|identity-token|access-token|auth-token)"
)
_ASKS: Final = (
    r"(?:get|print|show|export|reveal|dump|access|fetch|lookup|read|view|create|generate|decrypt|find|pull"
    r"|cat|list|display)"
)
GIVES_OUT: Final = re.compile(
    rf"(?i)(?:--?)?{_ASKS}[-_:]?(?:\w+-){{0,2}}{_SECRET}(?:-value|-values)?(?:=.*)?|(?:auth|account|user|session):?[-_:]?token"
    r"|--show-(?:token|secrets?|passwords?|values)|--reveal|--with-decryption|--decrypt|--export-secret-\w+|--with-passphrase"
    r"|export-credentials|print-(?:access|identity)-token|get-login|find-(?:generic|internet)-password|dump-keychain"
)
"""One word that says it."""
PAIRS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    # Words of one program that say it together, all of them.
    "kubectl": (("config", "--raw"), ("get", "secret"), ("get", "secrets"), ("describe", "secret"),
                ("create", "token")),
    "oc": (("config", "--raw"), ("get", "secret"), ("get", "secrets"), ("whoami", "-t"), ("extract",)),
    "aws": (
        ("secretsmanager", "get-secret-value"),
        ("ssm", "get-parameter"),
        ("ssm", "get-parameters"),
        ("ssm", "get-parameters-by-path"),
        ("configure", "get"),
        ("sts", "get-session-token"),
        ("sts", "assume-role"),
        ("kms", "decrypt"),
        ("iam", "create-access-key"),
        ("ecr", "get-login-password"),
    ),
    "az": (("secret", "show"), ("secret", "list"), ("key", "download"), ("keys", "list"), ("get-access-token",)),
    "gcloud": (("secrets", "access"), ("auth", "application-default", "print-access-token"), ("kms", "decrypt")),
    "gh": (("auth", "token"), ("auth", "--show-token"), ("auth", "-t")),
    "glab": (("auth", "--show-token"), ("auth", "-t")),
    "heroku": (("auth:token",), ("config",), ("config:get",)),
    "fly": (("auth", "token"), ("tokens", "create")),
    "flyctl": (("auth", "token"), ("tokens", "create")),
    "vercel": (("env", "pull"),),
    "doppler": (("secrets",),),
    "infisical": (("secrets",), ("export",)),
    "chamber": (("read",), ("export",), ("env",)),
    "credstash": (("get",), ("getall",)),
    "lpass": (("show",), ("export",)),
    "rbw": (("get",),),
    "keyring": (("get",),),
    "keepassxc-cli": (("show",), ("export",), ("clip",)),
    "sops": (("-d",), ("--decrypt",), ("decrypt",), ("exec-env",), ("exec-file",)),
    "age": (("-d",), ("--decrypt",)),
    "rage": (("-d",), ("--decrypt",)),
    "ansible-vault": (("view",), ("decrypt",), ("edit",)),
    "rails": (("credentials:show",), ("credentials:edit",)),
    "git": (("credential", "fill"), ("credential-store", "get"), ("credential-cache", "get"),
            ("credential-osxkeychain", "get")),
    "npm": (("token",), ("config", "_authToken")),
    "terraform": (("output", "-raw"), ("state", "pull")),
    "tofu": (("output", "-raw"), ("state", "pull")),
    "pulumi": (("config", "--show-secrets"), ("stack", "--show-secrets")),
    "systemd-creds": (("decrypt",), ("cat",)),
    "nmcli": (("-s",), ("--show-secrets",)),
    "rclone": (("config", "show"), ("config", "dump"), ("reveal",)),
    "tailscale": (("debug", "prefs"),),
    "wg": (("showconf",), ("show", "private-key")),
    "kwallet-query": (("-r",), ("--read-password",)),
    "eksctl": (("utils", "write-kubeconfig"),),
    "vault": (("read",), ("kv", "get"), ("token", "lookup"), ("print", "token"), ("token", "create")),
    "op": (("read",), ("item", "get"), ("document", "get"), ("inject",)),
    "bw": (("get",), ("list",), ("export",), ("unlock", "--raw")),
    "pass": (("show",), ("grep",), ("-c",), ("find", "-c")),
    "gopass": (("show",), ("grep",), ("cat",)),
    "secret-tool": (("lookup",), ("search",)),
    "keyctl": (("read",), ("print",), ("pipe",)),
    "security": (("find-generic-password",), ("find-internet-password",), ("dump-keychain",), ("export",)),
}  # fmt: skip
PROJECT_TOOLS: Final = _set("npm yarn pnpm cargo poetry gem docker podman git hg rails")
"""Their words may be a project's own, as in `npm run get-token`: only the pairs count."""
HELPERS: Final = ("git-credential-", "docker-credential-")
"""How programs are called that do nothing else."""


def keeps_secrets(name: str | None) -> bool:
    """Whether the program keeps any."""
    return name in KEEPERS or (name is not None and name.startswith(HELPERS))


def gives_out_secret(name: str, texts: tuple[str | None, ...]) -> bool:
    """Whether the program, with these arguments, prints a secret that it keeps."""
    if name not in KEEPERS:
        return name.startswith(HELPERS) and any(text in ("get", "list") for text in texts)
    said = {text for text in texts if text}
    if any(said.issuperset(row) for row in PAIRS.get(name, ())):
        return True
    return name not in PROJECT_TOOLS and any(GIVES_OUT.fullmatch(text) for text in said)
