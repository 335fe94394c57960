"""Real clients as they come, each with one request that tells by its output that the answer came from the server."""

from dataclasses import dataclass
from typing import Final

PYTHON_ON: Final = "python"
"""Stands for the interpreter that has the test's libraries."""


NEWER_NODE: Final = "newer node"
GO: Final = "go"
"""Stand for what a test has to bring first."""


@dataclass(frozen=True)
class Client:
    name: str
    command: str
    program: str
    """What has to be installed."""
    heeds: bool = True
    """Whether it does what proxy variables say; else its connections are led to the proxy."""
    says: str = "hello from outside"
    files: tuple[tuple[str, str], ...] = ()
    own_roots: str = ""
    """The variable by which it learns of authorities, if it carries its own and reads no file of the system's."""


_JAVA: Final = """
import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
    var asked = HttpRequest.newBuilder(URI.create(a[0])).build();
    System.out.print(HttpClient.newHttpClient().send(asked, HttpResponse.BodyHandlers.ofString()).body()); } }
"""
_AIOHTTP: Final = """
import asyncio, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=TRUST) as session, session.get("https://web.example/") as answer:
        print(await answer.text())
asyncio.run(main())
"""
_WEBSOCKETS: Final = """
import asyncio, websockets
async def main():
    async with websockets.connect("wss://web.example/talk") as talk:
        await talk.send("a word")
        print(await talk.recv())
asyncio.run(main())
"""
_GRPC: Final = """
import grpc
with grpc.secure_channel("grpc.example:443", grpc.ssl_channel_credentials()) as channel:
    print(channel.unary_unary("/test.Peer/Unary")(b"hello by grpc", timeout=20).decode())
"""
_NODE_HTTPS: Final = """
require("https").get("https://web.example/", answer => answer.pipe(process.stdout))
    .on("error", fault => { console.error(fault); process.exitCode = 1 })
"""
_NODE_FETCH: Final = 'fetch("https://web.example/").then(r => r.text()).then(console.log)'
_CLONE: Final = "https://anybody:known-to-everybody@open-git.example/first"
_URL: Final = "https://web.example/"
_NODE_ROOTS: Final = "NODE_EXTRA_CA_CERTS"


def _python(name: str, text: str, **more: object) -> Client:
    path = f"client_{''.join(filter(str.isalnum, name))}.py"
    return Client(name, f"{PYTHON_ON} {path}", PYTHON_ON, files=((path, text),), **more)  # type: ignore[arg-type]


_APT: Final = """
set -e
top=$(mktemp -d)
mkdir -p $top/lists/partial $top/archives/partial
touch $top/status
echo "deb [trusted=yes] URL/apt ./" > $top/sources.list
set -- -o Dir::State=$top -o Dir::State::lists=$top/lists -o Dir::State::status=$top/status -o Dir::Cache=$top
set -- "$@" -o Dir::Etc::sourcelist=$top/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::parts=/dev/null
set -- "$@" -o APT::Sandbox::User= -o Acquire::Retries=0
apt-get -q "$@" update >&2
apt-cache "$@" show greeting
"""
_NEWER_NODE: Final = "newer/node_modules/node/bin/node"
"""Where the tests put what npm's package `node` brings."""
_NODE_HTTPS_FILE: Final = (("node_https.cjs", _NODE_HTTPS),)
GO_PROGRAM: Final = """
package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
    answer, fault := http.Get("https://web.example/")
    if fault != nil { fmt.Fprintln(os.Stderr, fault); os.Exit(1) }
    text, _ := io.ReadAll(answer.Body)
    fmt.Print(string(text))
}
"""

CLIENTS: Final = (
    Client("curl, HTTP/1.1", f"curl -sS --http1.1 {_URL}", "curl", says="hello from outside by HTTP/1.1"),
    Client("curl, HTTP/2", f"curl -sS --http2 {_URL}", "curl", says="hello from outside by HTTP/2"),
    Client("curl, plain", "curl -sS http://web.example/", "curl"),
    Client("wget", f"wget -qO- {_URL}", "wget"),
    Client("git", f"rm -rf cloned && git clone -q {_CLONE} cloned && cat cloned/README; rm -rf cloned", "git"),
    _python("urllib", f"import urllib.request as u\nprint(u.urlopen('{_URL}').read().decode())\n"),
    _python("requests", f"import requests\nprint(requests.get('{_URL}').text)\n"),
    _python("httpx", f"import httpx\nprint(httpx.get('{_URL}').text)\n"),
    _python(
        "httpx, HTTP/2",
        f"import httpx\nprint(httpx.Client(http2=True).get('{_URL}').text)\n",
        says="hello from outside by HTTP/2",
    ),
    _python("aiohttp", _AIOHTTP.replace("TRUST", "False"), heeds=False),
    _python("aiohttp, trust_env", _AIOHTTP.replace("TRUST", "True")),
    _python("websockets", _WEBSOCKETS, says="you said a word"),
    _python("grpc", _GRPC, says="HELLO BY GRPC", own_roots="GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    Client("node fetch", f"node -e '{_NODE_FETCH}'", "node", heeds=False, own_roots=_NODE_ROOTS),
    Client(
        "node https",
        "node node_https.cjs",
        "node",
        heeds=False,
        files=_NODE_HTTPS_FILE,
        own_roots=_NODE_ROOTS,
    ),
    Client("java", f"java Get.java {_URL}", "java", heeds=False, files=(("Get.java", _JAVA),)),
    Client("apt", "sh apt.sh", "apt-get", files=(("apt.sh", _APT.replace("URL", _URL.rstrip("/"))),)),
    Client(
        "apt, plain", "sh apt_plain.sh", "apt-get", files=(("apt_plain.sh", _APT.replace("URL", "http://web.example")),)
    ),
    Client("newer node fetch", f"{_NEWER_NODE} -e '{_NODE_FETCH}'", NEWER_NODE, own_roots=_NODE_ROOTS),
    Client(
        "newer node https",
        f"{_NEWER_NODE} node_https.cjs",
        NEWER_NODE,
        files=_NODE_HTTPS_FILE,
        own_roots=_NODE_ROOTS,
    ),
    Client("go", "./go_get", GO),
)
