"""Which parent proxy the person's network has: what their own clients use, unless their own settings say otherwise.

Never what a policy or a box says: whoever names the proxy sees where everything goes. The environment is that of
whoever runs Ringfence, as `curl` or `pip` would read it there.
"""

import base64
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from ringfence.errors import InvalidConfig
from ringfence.values.hosts import BadHost, canonical_host
from ringfence.values.parent_proxy import ParentProxies, ParentProxy

NONE: Final = "none"
FROM_ENVIRONMENT: Final = "environment"
_DEFAULT_PORT: Final = 80
_HTTPS: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_HTTP: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_EXEMPT: Final = ("no_proxy", "NO_PROXY")


def parents_of(environ: Mapping[str, str], setting: str = "") -> ParentProxies:
    """
    Args:
        setting: `network.parentProxy` of sandbox.json: a URL, `none`, or `environment`, which is the default.

    Raises:
        InvalidConfig: a URL is none of a proxy that can be used. Nothing goes out directly instead.
    """
    exempt = tuple((_first(environ, _EXEMPT)[1]).replace(",", " ").split())
    if setting == NONE:
        return ParentProxies()
    if setting not in ("", FROM_ENVIRONMENT):
        named = _parsed("network.parentProxy", setting)
        return ParentProxies(https=named, http=named, exempt=exempt)
    # A web server hands a client's header "Proxy" to its programs as HTTP_PROXY.
    http = tuple(name for name in _HTTP if name != "HTTP_PROXY" or "REQUEST_METHOD" not in environ)
    made = [_parsed(*found) if found[1] else None for found in (_first(environ, _HTTPS), _first(environ, http))]
    return ParentProxies(https=made[0], http=made[1], exempt=exempt)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The first of these variables that is set, and its value; one that is set to nothing says that there is none."""
    return next(((name, environ[name].strip()) for name in names if name in environ), ("", ""))


def _parsed(name: str, url: str) -> ParentProxy:
    hint = "write http://host:port, or http://user:password@host:port in the variable; or set network.parentProxy of "
    hint += "sandbox.json to none, if there is to be no parent proxy"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = canonical_host(parts.hostname or ""), parts.port or _DEFAULT_PORT
    except (ValueError, BadHost):
        raise InvalidConfig(f"{name} is no address of a proxy", hint=hint) from None  # it may hold a password
    if parts.scheme != "http":
        raise InvalidConfig(f"{name} names a proxy by {parts.scheme}:, which cannot be used", hint=hint)
    if parts.username is None:
        return ParentProxy(host.text, port)
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return ParentProxy(host.text, port, "Basic " + base64.b64encode(words.encode()).decode())
