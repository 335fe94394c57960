"""Joins the caller's trace: what a request runs hangs below the span that its `traceparent` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def joined(headers: Mapping[str, str], *, is_on: bool) -> Iterator[None]:
    """
    Args:
        is_on: whether anybody makes spans here; else nothing is loaded for it.
    """
    if not is_on or "traceparent" not in headers:
        yield
        return
    from opentelemetry import context, propagate

    carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)
