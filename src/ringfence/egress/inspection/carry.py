"""One request from its head to its record: judged, secrets put in, sent on, answered.

Order matters. Nothing is dialled before the verdict. What is recorded is what the box asked for, so that the record is
made from the head as it came, never from the one with secrets in it. Both bodies stream at once, each as fast as the
slower end takes it; what is held is what a signer has to see before the head can be sent.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ringfence.dataclass import dataclass
from ringfence.egress.base import DialRefused, Flow, Refusal, RequestHead, SecretDesk, SecretRefused, Swapped
from ringfence.egress.inspection.answers import Scrubbed, scrubbed
from ringfence.egress.inspection.base import (
    Answer,
    ClientFailed,
    Incoming,
    Limits,
    Outgoing,
    ServerFailed,
    Stopped,
    Upstream,
)
from ringfence.egress.inspection.heads import replaced
from ringfence.egress.inspection.tally import Tally
from ringfence.egress.inspection.websocket import relay
from ringfence.policy.reach import Judged
from ringfence.values.verdict import Verdict


@dataclass(slots=True)
class _Prepared:
    """A request that may go out."""

    swapped: Swapped
    head: RequestHead
    held: bytes | None
    """Its body, if a signer had to see it."""
    largest: int | None


class Carrier:
    """Carries the requests of one connection."""

    def __init__(self, flow: Flow, desk: SecretDesk, upstream: Upstream, limits: Limits, *, tls: bool) -> None:
        self._flow = flow
        self._desk = desk
        self._upstream = upstream
        self._limits = limits
        self._tls = tls

    async def carry(self, incoming: Incoming) -> None:
        """Never raises what a client or server did; cancelled, it gives the request up."""
        tally = Tally(self._flow, incoming.head)
        try:
            await self._carry(incoming, tally)
        except (Stopped, DialRefused, SecretRefused) as stopped:
            if isinstance(stopped, DialRefused) and stopped.refusal.status == 403:
                tally.is_recorded = True  # an address that no rule allows: by the flow
            tally.refused(stopped.refusal)
            with contextlib.suppress(ClientFailed):
                await incoming.refuse(stopped.refusal)
        except ClientFailed as failed:
            tally.failed(str(failed))
        except asyncio.CancelledError:
            tally.failed("given up by the client")
            raise
        finally:
            tally.record()

    async def _carry(self, incoming: Incoming, tally: Tally) -> None:
        judged = await self._flow.decide(incoming.head)
        if isinstance(judged, Refusal):
            tally.is_recorded = True  # by the flow, which knows the rule and what would allow it
            raise Stopped(judged)
        tally.judged = judged
        if judged.verdict is not Verdict.ALLOW:
            raise Stopped(Refusal(403, f"Ringfence: {judged.reason}"))
        prepared = await self._prepare(incoming, judged)
        tally.secrets = prepared.swapped.names
        outgoing, answer, upload = await self._send(incoming, prepared, tally)
        try:
            tally.status = answer.status
            if answer.status == 101:
                await self._switch(incoming, outgoing, answer, prepared.swapped, tally)
            else:
                is_waiting = incoming.wants_continue  # for a body that the server does not want
                await self._answer(incoming, outgoing, answer, prepared.swapped, tally)
                if not is_waiting:
                    await self._end_upload(upload)
        except ServerFailed as failed:
            raise _cause(upload) or failed from failed
        except BaseException:
            outgoing.abort()
            raise
        finally:
            if upload is not None:
                await _cancel(upload)
            await outgoing.release()

    # --- before anything is sent --------------------------------------------------------------------------------------

    async def _prepare(self, incoming: Incoming, judged: Judged) -> _Prepared:
        largest = _largest(self._flow, judged)
        if largest is not None and incoming.length is not None and incoming.length > largest:
            raise Stopped(_too_large(largest))
        swapped = await self._desk.swap(self._flow.host, self._flow.port, incoming.head, tls=self._tls)
        if isinstance(swapped, Refusal):
            raise Stopped(swapped)
        head, held = swapped.head, None
        if swapped.signed_body:
            held = await self._hold(incoming, swapped, min(swapped.signed_body, largest or swapped.signed_body))
            signed = await self._desk.sign(self._flow.host, swapped, held)
            if isinstance(signed, Refusal):
                raise Stopped(signed)
            head = signed
            if incoming.has_body:
                head = replaced(head, b"content-length", b"%d" % len(held))
        if swapped.scrub is not None or swapped.scrub_body is not None:
            head = replaced(head, b"accept-encoding", b"identity")  # what is compressed cannot be looked through
        if swapped.frame is not None or (incoming.upgrades and swapped.scrub is not None):
            head = RequestHead(
                head.method, head.path, tuple(each for each in head.headers if each[0] != b"sec-websocket-extensions")
            )
        return _Prepared(swapped, head, held, largest)

    async def _hold(self, incoming: Incoming, swapped: Swapped, largest: int) -> bytes:
        if not incoming.has_body:
            return b""
        await incoming.send_continue()
        held = bytearray()
        async for data in _changed(incoming.body(), swapped):
            held += data
            if len(held) > largest:
                raise Stopped(_too_large(largest))
        return bytes(held)

    # --- towards the server -------------------------------------------------------------------------------------------

    async def _send(
        self, incoming: Incoming, prepared: _Prepared, tally: Tally
    ) -> tuple[Outgoing, Answer, asyncio.Task[None] | None]:
        """The request on its way, with its answer's head and whatever is still being uploaded."""
        try:
            return await self._attempt(incoming, prepared, tally)
        except ServerFailed as failed:
            # An idle connection that ended as we took it says nothing about the request: tried once more, if nothing
            # of a body is gone.
            if not failed.said_nothing or (incoming.has_body and prepared.held is None):
                raise
        return await self._attempt(incoming, prepared, tally)

    async def _attempt(
        self, incoming: Incoming, prepared: _Prepared, tally: Tally
    ) -> tuple[Outgoing, Answer, asyncio.Task[None] | None]:
        head, held = prepared.head, prepared.held
        self._spend(_size(head), tally)
        chunked = incoming.has_body and incoming.length is None and held is None
        outgoing = await self._upstream.open(head, incoming.spelled, chunked=chunked, ended=not incoming.has_body)
        upload: asyncio.Task[None] | None = None
        try:
            if incoming.has_body:
                upload = asyncio.create_task(self._upload(incoming, outgoing, prepared, tally))
            try:
                async with asyncio.timeout(self._limits.times.answer) as waiting:
                    if upload is not None:
                        self._restart_when(upload, waiting)
                    return outgoing, await outgoing.answer(), upload
            except TimeoutError:
                raise ServerFailed("Ringfence: the server gave no answer in time", 504) from None
        except BaseException as error:
            outgoing.abort()
            cause = _cause(upload)
            if upload is not None:
                await _cancel(upload)
            await outgoing.release()
            if cause is not None and isinstance(error, ServerFailed):
                raise cause from error
            raise

    def _restart_when(self, upload: asyncio.Task[None], waiting: asyncio.Timeout) -> None:
        """The time for an answer counts from the end of the upload, which may itself take as long as it likes."""
        loop = asyncio.get_running_loop()

        def restart(_: object) -> None:
            if not waiting.expired():
                with contextlib.suppress(RuntimeError):  # the answer is there
                    waiting.reschedule(loop.time() + self._limits.times.answer)

        with contextlib.suppress(RuntimeError):
            waiting.reschedule(None)
        upload.add_done_callback(restart)

    async def _upload(self, incoming: Incoming, outgoing: Outgoing, prepared: _Prepared, tally: Tally) -> None:
        try:
            if prepared.held is not None:
                self._spend(len(prepared.held), tally)
                if prepared.held:
                    await outgoing.send_data(prepared.held)
                await outgoing.send_end(())
                return
            if incoming.wants_continue:
                await self._await_continue(outgoing)
                await incoming.send_continue()
            async for data in _changed(_bounded(incoming.body(), prepared.largest), prepared.swapped):
                self._spend(len(data), tally)
                await outgoing.send_data(data)
            self._check_trailers(incoming)
            await outgoing.send_end(incoming.trailers)
        except ServerFailed:
            pass  # what it answered before, or that it answered nothing, is told by its answer
        except (Stopped, SecretRefused, ClientFailed):
            outgoing.abort()
            raise

    def _check_trailers(self, incoming: Incoming) -> None:
        """No secret is put into what follows a body, so that a placeholder there is astray wherever it goes."""
        said = b"\n".join(name + b":" + value for name, value in incoming.trailers)
        if said and (canary := self._desk.canary(said)):
            raise Stopped(Refusal(403, "Ringfence: placeholder of a secret in a trailer", canary=canary))

    async def _await_continue(self, outgoing: Outgoing) -> None:
        deadline = asyncio.get_running_loop().time() + self._limits.times.hundred
        while not outgoing.continued and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)

    async def _end_upload(self, upload: asyncio.Task[None] | None) -> None:
        """The answer is whole; a body that is nearly out may still come to its end, so that the connection can stay."""
        if upload is not None and not upload.done():
            await asyncio.wait({upload}, timeout=self._limits.times.hundred)

    def _spend(self, sent: int, tally: Tally) -> None:
        tally.bytes_out += sent
        if not self._flow.spend(sent):
            raise Stopped(Refusal(429, "Ringfence: this box has sent as many bytes as it may"))

    # --- back to the client -------------------------------------------------------------------------------------------

    async def _answer(
        self, incoming: Incoming, outgoing: Outgoing, answer: Answer, swapped: Swapped, tally: Tally
    ) -> None:
        clean: Scrubbed = scrubbed(answer, swapped, outgoing.body(), is_head=incoming.head.method == "HEAD")
        await incoming.send_head(clean.answer)
        async for data in clean.body:
            if data:
                tally.bytes_in += len(data)
                await incoming.send_data(data)
        await incoming.send_end(clean.trailers(outgoing.trailers))

    async def _switch(
        self, incoming: Incoming, outgoing: Outgoing, answer: Answer, swapped: Swapped, tally: Tally
    ) -> None:
        if not incoming.upgrades:
            raise ServerFailed("Ringfence: the server switched to another protocol unasked")
        server = await outgoing.switch()
        clean = scrubbed(answer, swapped, outgoing.body(), is_head=True)
        client = await incoming.switch(clean.answer)
        await relay(self._flow, client, server, swapped, self._limits, tally)


async def _bounded(body: AsyncIterator[bytes], largest: int | None) -> AsyncIterator[bytes]:
    sent = 0
    async for data in body:
        sent += len(data)
        if largest is not None and sent > largest:
            raise Stopped(_too_large(largest))
        yield data


def _changed(body: AsyncIterator[bytes], swapped: Swapped) -> AsyncIterator[bytes]:
    return body if swapped.body is None else swapped.body(body)


def _largest(flow: Flow, judged: Judged) -> int | None:
    bounds = [flow.network.budget.body_bytes, judged.matched.budget.body_bytes if judged.matched else None]
    return min((bound for bound in bounds if bound is not None), default=None)


def _too_large(largest: int) -> Refusal:
    return Refusal(413, f"Ringfence: a request may send {largest} bytes at most here")


def _size(head: RequestHead) -> int:
    return len(head.method) + len(head.path) + 12 + sum(len(name) + len(value) + 4 for name, value in head.headers)


def _cause(upload: asyncio.Task[None] | None) -> BaseException | None:
    """Why the upload ended the exchange, if it did."""
    return upload.exception() if upload is not None and upload.done() and not upload.cancelled() else None


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, OSError):
        await task
