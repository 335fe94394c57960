"""Secrets do not get into the journal; what is none stays."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.audit.redact import SHAPES, TEXT_MAX, Redactor, is_secret_name

pytestmark = pytest.mark.req("B9")

# Put together here, so that no scanner takes this file for a leak.
LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
SECRETS = {
    "AWS key id": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS session key id": "ASIA" + "IOSFODNN7EXAMPLE",
    "GitHub": "ghp_" + LETTERS,
    "GitHub OAuth": "gho_" + LETTERS,
    "GitHub server": "ghs_" + LETTERS,
    "GitHub fine-grained": "github_pat_" + LETTERS[:22] + "_" + LETTERS,
    "GitLab": "glpat-" + LETTERS[:20],
    "GitLab runner": "glrt-" + LETTERS[:20],
    "Slack bot": "xoxb-" + "123456789012-123456789012-" + LETTERS[:24],
    "Slack app": "xapp-" + "1-A123-123456-" + LETTERS,
    "OpenAI": "sk-" + LETTERS + LETTERS[:12],
    "OpenAI project": "sk-proj-" + LETTERS + "_-" + LETTERS,
    "Anthropic": "sk-ant-" + "api03-" + LETTERS + "-" + LETTERS,
    "Stripe": "sk_live_" + LETTERS[:24],
    "Google": "AIza" + (LETTERS * 2)[:35],
    "Google OAuth": "ya29." + LETTERS,
    "npm": "npm_" + LETTERS,
    "PyPI": "pypi-" + LETTERS * 2,
    "Hugging Face": "hf_" + LETTERS[:34],
    "JWT": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "PEM": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + LETTERS + "\n-----END RSA PRIVATE KEY-----",
    "PEM without its end": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r" + LETTERS,
    "PGP": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ" + LETTERS + "\n-----END PGP PRIVATE KEY BLOCK-----",
}
AROUND = ["{}", "echo {}", "curl -d '{}' x", 'print("{}")', "a={};b", "https://{}@github.com/o/r", "x\n{}\ny", "({})"]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_known_by_its_shape_wherever_it_stands(name: str) -> None:
    secret = SECRETS[name]
    for around in AROUND:
        text = around.format(secret)
        cleaned = Redactor().text(text)
        assert secret not in cleaned and LETTERS[:12] not in cleaned, text
        assert "[redacted: " in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2!",
        "DB_PASSWORD=hunter2!",
        "export DB_PASSWORD='hunter2!'",
        'PGPASSWORD="hunter2!" psql',
        '{"password": "hunter2!"}',
        "{'api_key': 'hunter2!'}",
        "password: hunter2!",
        "password = hunter2!",
        'secret = "hunter2!"',
        "AWS_SECRET_ACCESS_KEY=hunter2!",
        "client_secret=hunter2!&grant_type=x",
        "https://x/y?token=hunter2!&z=1",
        "https://x/y?access_token=hunter2!",
        "X-Api-Key: hunter2!",
        "mytool --password hunter2!",
        "mytool --password=hunter2!",
        "mytool --db-password 'hunter2!'",
        "mytool --api-key hunter2!",
        "curl -H 'Authorization: Bearer hunter2' x",
        'requests.get(u, headers={"Authorization": "Bearer hunter2"})',
        "Authorization: Basic hunter2",
        "Authorization: token hunter2",
        "curl -u bob:hunter2! https://x",
        "curl --user bob:hunter2! https://x",
        "https://bob:hunter2!@example.org/x",
        "postgresql://app:hunter2!@db:5432/x",
        "redis://:hunter2!@cache",
        "mysql -u root -phunter2! db",
        "sshpass -phunter2! ssh h",
        "passphrase=hunter2!",
    ],
)
def test_a_secret_is_known_by_what_it_is_assigned_to(text: str) -> None:
    assert "hunter2" not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "pytest -q tests/unit -k 'not slow' --maxfail 1",
        "git log --author=Jane --since=2.weeks",
        "token=$TOKEN make deploy",
        'curl -H "Authorization: Bearer $TOKEN" https://x',
        "password = os.environ['PASSWORD']",
        "password=get_password()",
        "token = tokens.pop()",
        "token = lexer.next",
        "if token == 'EOF': break",
        "max_tokens=4096",
        "tokenizer = 'bert-base-uncased'",
        "def login(user: str, password: str) -> None: ...",
        "function f(token: string) {}",
        "api_key: None",
        'read -p "password: " pw; echo "done"',
        "token_count: 12345",
        "secret_name=db-credentials",
        "--token-file /run/x --password-file /run/y",
        "password={{ vault.db }}",
        "docker run -u 1000:1000 image",
        "cp -pr a b; mkdir -p x/y",
        "sort -u a:b",
        "kubectl get secrets --namespace x",
        "https://example.org:8080/path",
        "git@github.com:o/r.git",
        "ssh://git@host/x",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "9f86d081884c7d659a2feaa0c55ad015",
        "risk-management task-list-of-a-very-long-name-with-hyphens disk-by-uuid-0123456789",
        "sk-learn-pipeline-for-the-next-release",
        "keyboard=us monkey=banana key=value",
        "AKIA is how such a key begins",
        "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----",
        "highlight high-level global glob-pattern",
        "echo $((1+2)) && for i in *; do :; done",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_what_stands_around_a_secret_stays() -> None:
    assert Redactor().text("curl -u bob:hunter2 https://u:pw@h/x --retry 3") == (
        "curl -u bob:[redacted: password] https://u:[redacted: URL credentials]@h/x --retry 3"
    )


def test_values_of_variables_with_telling_names_are_taken_out_and_others_are_not() -> None:
    redact = Redactor(variables=[("API_TOKEN", "blue-horse-9"), ("GREETING", "good-morning"), ("PIN_SECRET", "1")])

    assert redact.text("echo blue-horse-9 good-morning 1") == "echo [redacted: API_TOKEN] good-morning 1"
    more = redact.knowing([("DB_PASS", "green-dog-77")])
    assert more.text("blue-horse-9 green-dog-77") == "[redacted: API_TOKEN] [redacted: DB_PASS]"
    assert redact.knowing([("LANG", "C.UTF-8")]) is redact


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        *((name, True) for name in ("PASSWORD", "DB_PASS", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "apiKey", "KEY")),
        *((name, True) for name in ("SENTRY_DSN", "SESSION_COOKIE", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE")),
        *((name, False) for name in ("PATH", "HOME", "KEYBOARD", "LANG", "MONKEY", "COMPASS_X", "AUTHOR", "TOKENIZER")),
    ],
)
def test_which_names_are_telling(name: str, telling: bool) -> None:
    assert is_secret_name(name) is telling


def test_configured_texts_are_taken_out() -> None:
    redact = Redactor(["corp-*-key", "Falcon"])

    assert redact.text("x corp-123-key Falcon corp- key") == "x [redacted: configured] [redacted: configured] corp- key"


def test_a_long_text_is_cut_and_a_secret_at_the_cut_does_not_show() -> None:
    secret = SECRETS["Anthropic"]
    for before in range(TEXT_MAX - len(secret) - 5, TEXT_MAX + 5, 7):
        assert LETTERS[:12] not in Redactor().text("x" * (before - 1) + " " + secret + " y" * 9000)
    many = (secret + " ") * 200  # taking out makes room, and what is near the end of the window moves up
    assert LETTERS[:12] not in Redactor().text(many + "z" * 9000)
    assert len(Redactor().text("ordinary words " * 5000)) == TEXT_MAX


HOSTILE = [
    "password=", "eyJ", "eyJ.", "-----BEGIN PRIVATE KEY-----", "://", "://a:", "authorization: ", "curl -u a:",
    "--token ", "token = ", "token_", "mysql -", "mysql a ", "sk-", "'password':\"", "bearer ", "a@", "gh", "AKIA",
    "secret-", "-----BEGIN ", "hooks.slack.com/services/", "corp-",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_no_longer_than_its_length_allows(piece: str) -> None:
    redact = Redactor(["corp-*-key-*-x"])
    for text in (piece * (100_000 // len(piece)), (piece + "x") * 5000, (piece + " ") * 5000):
        begin = time.process_time()
        redact.text(text)
        assert time.process_time() - begin < 0.5


@given(st.text(max_size=300))
def test_any_text_can_be_given_and_once_is_enough(text: str) -> None:
    once = Redactor().text(text)

    assert Redactor().text(once) == once or "[redacted" in once


def test_every_shape_has_a_reason_and_a_hint() -> None:
    assert all(shape.why and shape.hints and shape.name for shape in SHAPES)
    assert all(hint == hint.lower() for shape in SHAPES for hint in shape.hints)
