"""The words that a browser is started with, each with its reason.

In a box the wall holds and these only keep it quiet: there is no other way out of its network than the proxy. An
external browser has nothing but them.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_QUIET: Final = (
    "--no-first-run",  # no welcome
    "--no-default-browser-check",
    "--disable-background-networking",  # no requests of its own
    "--disable-component-update",  # the updater
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-domain-reliability",  # reports of failed requests
    "--no-pings",  # of links, as they are clicked
    "--disable-breakpad",  # reports of crashes
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    "--mute-audio",
    "--disable-features=Translate,MediaRouter,OptimizationHints,AutofillServerCommunication,DialMediaRouteProvider,"
    "InterestFeedContentSuggestions,CertificateTransparencyComponentUpdater,DnsOverHttps,AsyncDns,HttpsUpgrades,"
    "NetworkPrediction,Prerender2,SpeculationRulesPrefetchFuture",
)
_CLOSED: Final = (
    "--disable-quic",  # UDP does not pass a proxy
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_COMMON: Final = (
    "--headless",
    "--disable-gpu",
    "--hide-scrollbars",
    "--site-per-process",  # the small one has it off: pages of other sites belong into processes of their own
    "--remote-debugging-pipe",
    "--window-size=1280,720",
    "--enable-automation",
    "--disable-blink-features=AutomationControlled",
    "--disable-popup-blocking",  # popups become tabs, of which we keep a few
    "--disable-ipc-flooding-protection",
    "--disable-renderer-backgrounding",  # a tab that is not the current one still answers
    "--disable-backgrounding-occluded-windows",
    "--disable-background-timer-throttling",
)


def boxed(profile: str, *, proxy: str = "", authority: bytes = b"", direct_loopback: bool = True) -> tuple[str, ...]:
    """For a browser in a box.

    Args:
        proxy: where the proxy listens inside; empty if there is no network.
        authority: in PEM, who signs for hosts whose connections are looked into.
        direct_loopback: whether servers on the box's own loopback are reached without the proxy.
    """
    words = [
        *_COMMON,
        *_QUIET,
        *_CLOSED,
        "--no-sandbox",  # the wall is the sandbox: inside it no second one can be built
        f"--user-data-dir={profile}",
    ]
    if proxy:
        words.append(f"--proxy-server={proxy}")
        if not direct_loopback:
            words.append("--proxy-bypass-list=<-loopback>")
    if authority:
        words.append(f"--ignore-certificate-errors-spki-list={spki_hash(authority)}")
    return (*words, "about:blank")


def external(profile: str, *, proxy: str = "", may_sandbox: bool) -> tuple[str, ...]:
    """For a browser that runs as an ordinary program of this machine."""
    words = [*_COMMON, *_QUIET, *_CLOSED, f"--user-data-dir={profile}"]
    words += [] if may_sandbox else ["--no-sandbox"]
    words += [f"--proxy-server={proxy}"] if proxy else []
    return (*words, "about:blank")


def spki_hash(certificate: bytes) -> str:
    """By what the browser knows a key: it takes every chain in which a certificate of this key comes along.

    It does not look whether that key has signed the others: whoever is on the way to a host that is not looked into,
    and has our certificate (which is no secret inside), is taken for that host.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_pem_x509_certificate(certificate).public_key()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()
