"""`asyncio` without TLS and `inspect`, until somebody needs them."""

import subprocess
import sys

import pytest

BEFORE = "import sys; from ringfence.cli.waiting import load_asyncio; load_asyncio(); import asyncio\n"


def said(code: str) -> str:
    return subprocess.run([sys.executable, "-c", BEFORE + code], capture_output=True, text=True, check=True).stdout


def test_they_are_not_loaded_until_they_are_used() -> None:
    assert said("print('_ssl' in sys.modules, 'dis' in sys.modules)") == "False False\n"
    assert said("asyncio.run(asyncio.sleep(0)); print('_ssl' in sys.modules)") == "False\n"
    code = "import asyncio, sys; print('_ssl' in sys.modules)"  # the twin
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


@pytest.mark.parametrize(
    "use",
    [
        "import ssl; print(ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED)",
        "import inspect; print(inspect.iscoroutinefunction(asyncio.sleep))",
        "from inspect import iscoroutinefunction; print(iscoroutinefunction(asyncio.sleep))",
        "print(issubclass(asyncio.sslproto.SSLProtocol, object))",
        "import asyncio.sslproto as there; print(there.ssl.OPENSSL_VERSION != '')",
        "import dataclasses; print(dataclasses.make_dataclass('A', ['x'])(1).x == 1)",
    ],
)
def test_whoever_looks_finds_the_whole_of_it(use: str) -> None:
    assert said(use) == "True\n"


def test_threads_that_look_at_once_all_find_it() -> None:
    code = """
import threading
found, go = [], threading.Barrier(8)
def look():
    go.wait()
    import ssl
    found.append(ssl.create_default_context is not None and ssl.SSLContext.__name__ == "SSLContext")
threads = [threading.Thread(target=look) for _ in range(8)]
[each.start() for each in threads]
[each.join() for each in threads]
print(found == [True] * 8)
"""
    assert said(code) == "True\n"


def test_what_is_loaded_already_stays_as_it_is() -> None:
    code = (
        "import asyncio, ssl; before = ssl\nfrom ringfence.cli.waiting import load_asyncio; load_asyncio()\n"
        "import ssl; print(ssl is before)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
