"""Variables by which clients find the proxy, and whom to trust: second to routes and mounts, which need none.

With the proxy named, a client tells the host's name outright, and a refusal has a status line that it prints. One
table, each row with its reason; a variable that the caller sets himself counts more.
"""

from collections.abc import Iterator
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.network import PROXY_PORT, NetworkGrant

PROXY: Final = f"http://127.0.0.1:{PROXY_PORT}"
DIRECT: Final = "localhost,127.0.0.1,::1"
"""Only the box itself. Never private networks: clients would then look them up, and see nothing of the reason."""


@dataclass(frozen=True, slots=True)
class ClientVariable:
    names: tuple[str, ...]
    value: str
    reason: str


PROXIES: Final = (
    ClientVariable(("http_proxy", "HTTP_PROXY"), PROXY, "curl reads the small letters alone for http, others both"),
    ClientVariable(("https_proxy", "HTTPS_PROXY"), PROXY, "wget reads the small letters alone, Go and git both"),
    ClientVariable(("all_proxy", "ALL_PROXY"), PROXY, "as http: httpx does not start with socks5h and no socksio"),
    ClientVariable(("ftp_proxy", "FTP_PROXY"), PROXY, "else ftp: is looked up, and fails without a reason"),
    ClientVariable(("grpc_proxy",), PROXY, "gRPC's own; it knows no SOCKS"),
    ClientVariable(("no_proxy", "NO_PROXY"), DIRECT, "servers in the box are reached without it"),
    ClientVariable(("NODE_USE_ENV_PROXY",), "1", "Node's fetch and http read none of the above without; since 22.21"),
    ClientVariable(("npm_config_noproxy",), DIRECT, "npm's own default is NO_PROXY, but not in every version"),
    ClientVariable(("CLOUDSDK_PROXY_TYPE",), "http", "gcloud has settings of its own"),
    ClientVariable(("CLOUDSDK_PROXY_ADDRESS",), "127.0.0.1", "gcloud"),
    ClientVariable(("CLOUDSDK_PROXY_PORT",), str(PROXY_PORT), "gcloud"),
)
_BUNDLE: Final = "{bundle}"
TRUSTS: Final = (
    ClientVariable(("SSL_CERT_FILE",), _BUNDLE, "OpenSSL, Go, uv, rustls; it replaces, so the file holds all"),
    ClientVariable(("REQUESTS_CA_BUNDLE",), _BUNDLE, "requests with a certifi that is not covered; conda"),
    ClientVariable(("CURL_CA_BUNDLE",), _BUNDLE, "a curl that was built elsewhere"),
    ClientVariable(("PIP_CERT",), _BUNDLE, "pip before 24.2 trusts its own copy of certifi"),
    ClientVariable(("UV_SYSTEM_CERTS", "UV_NATIVE_TLS"), "1", "uv has roots of its own otherwise; new and old name"),
    ClientVariable(("NODE_EXTRA_CA_CERTS",), _BUNDLE, "Node, Bun and Deno add it to their own roots"),
    ClientVariable(("NODE_USE_SYSTEM_CA",), "1", "Node since 22.15; workers and npm's children, too"),
    ClientVariable(("DENO_TLS_CA_STORE",), "system,mozilla", "Deno trusts Mozilla's roots alone otherwise"),
    ClientVariable(("DENO_CERT",), _BUNDLE, "Deno before it read NODE_EXTRA_CA_CERTS"),
    ClientVariable(("GIT_SSL_CAINFO",), _BUNDLE, "git with a libcurl of its own"),
    ClientVariable(("CARGO_HTTP_CAINFO",), _BUNDLE, "cargo's libcurl is its own"),
    ClientVariable(("AWS_CA_BUNDLE",), _BUNDLE, "botocore carries its own roots"),
    ClientVariable(("HTTPLIB2_CA_CERTS",), _BUNDLE, "httplib2 carries its own"),
    ClientVariable(("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",), _BUNDLE, "gRPC carries its own"),
    ClientVariable(("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",), _BUNDLE, "gcloud"),
    ClientVariable(("NIX_SSL_CERT_FILE",), _BUNDLE, "programs of Nix look here first"),
    ClientVariable(("BUNDLE_SSL_CA_CERT",), _BUNDLE, "Ruby's bundler"),
)


def network_variables(network: NetworkGrant, bundle: str) -> dict[str, str]:
    """For a box with this network.

    Args:
        bundle: where the file lies inside that holds whom to trust; empty where that is the system's choice.
    """
    rows = (*PROXIES, *(TRUSTS if network.inspects and bundle else ()))
    return dict(_named(rows, bundle))


def _named(rows: tuple[ClientVariable, ...], bundle: str) -> Iterator[tuple[str, str]]:
    for row in rows:
        for name in row.names:
            yield name, row.value.replace(_BUNDLE, bundle)
