"""Which parent proxy is used for which host: what the person's variables and settings say."""

import pytest

from ringfence.errors import InvalidConfig
from ringfence.manager.parent_proxies import parents_of
from ringfence.policy.config import parse_config
from ringfence.values.hosts import canonical_host
from ringfence.values.parent_proxy import ParentProxies, ParentProxy

HERE = ParentProxy("proxy.corp", 3128)


@pytest.mark.parametrize(
    ("rows", "host", "port", "is_exempt"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "a.b.example.com", 443, True),
        ("example.com", "notexample.com", 443, False),
        ("example.com", "example.com.evil.net", 443, False),
        (".example.com", "a.example.com", 443, True),
        ("*.example.com", "a.example.com", 443, True),
        ("EXAMPLE.com", "example.com", 443, True),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("*", "anything.example", 443, True),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3:80", "10.1.2.3", 80, True),
        ("10.1.2.3:80", "10.1.2.3", 443, False),
        ("[fd00::1]", "fd00::1", 443, True),
        ("fd00::/8", "fd12::9", 443, True),
        ("com", "10.1.2.3", 443, False),
        ("2.3", "10.1.2.3", 443, False),
        (".", "example.com", 443, False),
        ("a.example, b.example other.example", "other.example", 443, True),
    ],
)
def test_a_row_of_no_proxy_is_about_these_hosts(rows: str, host: str, port: int, is_exempt: bool) -> None:
    parents = parents_of({"HTTPS_PROXY": "http://proxy.corp:3128", "NO_PROXY": rows})
    assert (parents.of(canonical_host(host), port, is_plain=False) is None) is is_exempt


def test_small_letters_come_first_and_each_kind_has_its_own() -> None:
    parents = parents_of(
        {"https_proxy": "http://proxy.corp:3128", "HTTPS_PROXY": "http://other", "HTTP_PROXY": "plain"}
    )
    assert (parents.https, parents.http) == (HERE, ParentProxy("plain", 80))
    assert parents_of({"ALL_PROXY": "proxy.corp:3128"}) == ParentProxies(https=HERE, http=HERE)
    assert parents_of({"https_proxy": "", "HTTPS_PROXY": "http://other"}).https is None


def test_a_header_of_a_web_client_chooses_no_proxy() -> None:
    assert parents_of({"HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"}).http is None
    assert parents_of({"HTTP_PROXY": "http://evil"}).http is not None


def test_credentials_are_decoded_and_not_shown() -> None:
    made = parents_of({"HTTPS_PROXY": "http://ann%40corp:p%3Ass@proxy.corp:3128"}).https
    assert made is not None and made.authorization == "Basic YW5uQGNvcnA6cDpzcw=="
    assert "Basic" not in repr(made) and made.shown == "proxy.corp:3128"


@pytest.mark.parametrize("url", ["socks5://proxy.corp:1080", "https://proxy.corp", "http://", "http://x:99999"])
def test_a_proxy_that_cannot_be_used_is_an_error_that_shows_no_password(url: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parents_of({"HTTPS_PROXY": url.replace("://", "://ann:hunter2@")})
    assert "HTTPS_PROXY" in str(refused.value) and "hunter2" not in f"{refused.value}{refused.value.hint}"


def test_the_persons_own_settings_beat_the_variables() -> None:
    environ = {"HTTPS_PROXY": "http://other", "NO_PROXY": "near.example"}
    assert parents_of(environ, "none") == ParentProxies()
    named = parents_of(environ, "http://proxy.corp:3128")
    assert (named.https, named.http, named.exempt) == (HERE, HERE, ("near.example",))
    assert parents_of(environ, "environment") == parents_of(environ)


@pytest.mark.parametrize("text", ["http://proxy.corp:3128", "none", "environment"])
def test_the_setting_is_read(text: str) -> None:
    assert parse_config(f'{{"network": {{"parentProxy": "{text}"}}}}', "sandbox.json").parent_proxy == text


@pytest.mark.parametrize("text", ["http://ann:secret@proxy.corp:3128", "socks5://proxy.corp", "proxy.corp"])
def test_a_setting_that_cannot_be_is_an_error(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_config(f'{{"network": {{"parentProxy": "{text}"}}}}', "sandbox.json")
