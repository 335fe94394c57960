#!/usr/bin/python3
"""Stands in Chromium's place, and lies. What it does is its own file's name."""

import json
import os
import sys
import time
from collections.abc import Iterator

HOW = os.path.basename(sys.argv[0]).removeprefix("headless-")


def say(data: bytes) -> None:
    while data:
        data = data[os.write(4, data) :]


def answer(message: dict[str, object], result: object) -> None:
    say(json.dumps({"id": message["id"], "result": result}).encode() + b"\0")


def messages() -> Iterator[dict[str, object]]:
    left = b""
    while piece := os.read(3, 65536):
        *whole, left = (left + piece).split(b"\0")
        yield from map(json.loads, whole)


def main() -> None:
    if HOW == "ends":
        return
    if HOW == "no-nul":
        for _ in range(1024):
            say(b"x" * (1 << 20))
    if HOW == "garbage":
        say(os.urandom(100_000) + b"\0")
    if HOW == "deep":
        say(b"[" * 200_000 + b"\0")
    if HOW == "no-object":
        say(b"[1, 2]\0" * 10)
    if HOW == "not-a-number":
        say(b'{"id": NaN}\0')
    if HOW == "huge-number":
        say(b'{"id": ' + b"9" * 100_000 + b"}\0")
    if HOW == "strays":
        say(b"".join(json.dumps({"id": 10**6 + n, "result": {}}).encode() + b"\0" for n in range(1000)))
    if HOW == "flood":
        event = json.dumps({"method": "Page.frameAttached", "params": {"frameId": "f" * 500}}).encode() + b"\0"
        while True:
            say(event * 1000)
    if HOW == "bad-events":
        for method in ("Target.attachedToTarget", "Browser.downloadProgress", "Fetch.requestPaused"):
            say((json.dumps({"method": method, "params": {"a": []}}).encode() + b"\0") * 100)
    for message in messages():
        if HOW == "wrong-types":
            answer(message, {"targetInfos": 7, "targetId": [], "frameTree": "x", "result": []})
        if HOW == "no-results":
            say(json.dumps({"id": message["id"]}).encode() + b"\0")
        if HOW == "errors":
            said = {"code": "x", "message": ["y" * 100_000]}
            say(json.dumps({"id": message["id"], "error": said}).encode() + b"\0")
        if HOW == "half":
            say(json.dumps({"id": message["id"], "result": {}}).encode()[:-1])
    time.sleep(60)


main()
