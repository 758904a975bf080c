"""Queues the requests of clients for messages of a pull consumer."""

import json
from collections import OrderedDict
from collections.abc import Collection, Container, Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError
from kalda.nats.jetstream.consumer_config import MAX_WAITING_MAX, ConsumerConfig
from kalda.nats.jetstream.shared_limits import ClientShares

BODY_BYTES_MAX: Final = 16 * 1024
"""Of a pull request; clients send some hundred."""

HEARTBEAT_MIN_NS: Final = 10 * 1_000_000
"""Between the signs of life of a request; nats-server takes any time, and is then busy with nothing else."""

ENDED_AT_ONCE: Final = 128
"""Requests whose time is up, or that get a sign of life, in one turn."""

_REQUEST_BYTES: Final = 400
"""The memory of a waiting request without its reply subject."""

_NS: Final = 1_000_000_000


def status(code: int, description: str, *headers: tuple[str, object]) -> bytes:
    """Return the headers of a message that has a status instead of a payload."""
    lines = [f"NATS/1.0 {code} {description}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode()


class PullRefusedError(Exception):
    """A pull request is answered with a status."""

    def __init__(self, headers: bytes) -> None:
        super().__init__(headers.decode())
        self.headers: Final = headers


class NoRoomError(PullRefusedError):
    """A pull request is refused because of those at all consumers."""


_TOO_MANY: Final = status(409, "Exceeded MaxWaiting")


@dataclass(slots=True, eq=False)
class PullRequest:
    """A request that waits for messages; times are in seconds."""

    reply: bytes
    batch: int
    bytes_max: int
    """0 without a limit."""
    expires: float | None
    is_no_wait: bool
    heartbeat: float
    """Seconds between signs of life; 0 without them."""
    heartbeat_at: float | None = None
    sent: int = 0
    client: Hashable = None
    """Has a share of the requests that may wait."""

    @property
    def memory(self) -> int:
        """The bytes that the request takes while it waits."""
        return _REQUEST_BYTES + len(self.reply)

    def pending(self) -> tuple[tuple[str, object], tuple[str, object]]:
        """Return headers with the number of messages and bytes that the request may still get."""
        return ("Nats-Pending-Messages", self.batch), ("Nats-Pending-Bytes", self.bytes_max)

    def timeout(self) -> bytes:
        """Return the headers of the message that ends the request because its time is up."""
        return status(408, "Request Timeout", *self.pending())


def parse_pull(body: bytes, reply: bytes, config: ConsumerConfig, now: float) -> PullRequest:
    """Read a request.

    Raises:
        PullRefusedError: it is malformed, or asks for more than the consumer allows.
    """
    if config.is_push:
        raise PullRefusedError(status(409, "Consumer is push based"))
    batch, bytes_max, expires_ns, heartbeat_ns, is_no_wait = 1, 0, 0, 0, False
    text = body.strip()
    if len(text) > BODY_BYTES_MAX:
        raise PullRefusedError(status(400, f"Bad Request - the body has more than {BODY_BYTES_MAX} bytes"))
    if text.startswith(b"{"):
        try:
            sent = fields.read_object(text)
            batch = fields.integer(sent, "batch", 1)
            bytes_max = fields.integer(sent, "max_bytes")
            expires_ns = fields.integer(sent, "expires")
            heartbeat_ns = fields.integer(sent, "idle_heartbeat")
            is_no_wait = fields.flag(sent, "no_wait")
        except JetStreamError:
            raise PullRefusedError(status(400, f"Bad Request - {_json_problem(text)}")) from None
    elif text:
        if not text.isdigit() or len(text) > 9:
            raise PullRefusedError(status(400, "Bad Request - the body is no number and no JSON object"))
        batch = int(text)
    batch = max(batch, 1)
    if 0 < config.max_batch < batch:
        raise PullRefusedError(status(409, f"Exceeded MaxRequestBatch of {config.max_batch}"))
    if 0 < config.max_expires < expires_ns:
        raise PullRefusedError(status(409, f"Exceeded MaxRequestExpires of {duration(config.max_expires)}"))
    if 0 < config.max_bytes < bytes_max:
        raise PullRefusedError(status(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}"))
    if heartbeat_ns > 0 and (expires_ns <= 0 or heartbeat_ns * 2 > expires_ns):
        raise PullRefusedError(status(400, "Bad Request - heartbeat value too large"))
    if 0 < heartbeat_ns < HEARTBEAT_MIN_NS:
        raise PullRefusedError(status(400, "Bad Request - heartbeat value below 10ms"))
    heartbeat = max(heartbeat_ns, 0) / _NS
    return PullRequest(
        reply,
        batch,
        max(bytes_max, 0),
        now + expires_ns / _NS if expires_ns > 0 else None,
        is_no_wait,
        heartbeat,
        now + heartbeat if heartbeat else None,
    )


def _json_problem(text: bytes) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return str(error).replace("\r", " ").replace("\n", " ")[:200]
    except RecursionError:
        return "the JSON is nested too deeply"
    return "a value has another type"


def duration(nanoseconds: int) -> str:
    """Return a time as Go prints it, down to milliseconds: `1s`, `2m30s`, `1.5s`."""
    seconds, rest = divmod(nanoseconds, _NS)
    if not seconds:
        return f"{rest / 1_000_000:g}ms"
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{text}{seconds}{fraction}s"


class PullRequests:
    """The requests that wait at one consumer; the number of those that wait makes no operation slower."""

    def __init__(self, shares: ClientShares) -> None:
        """`shares` are those of the clients in the requests of all consumers."""
        self._shares: Final = shares
        self._waiting: Final[OrderedDict[PullRequest, None]] = OrderedDict()
        self._no_wait: Final[dict[PullRequest, None]] = {}
        """Those that do not wait for messages that are not there yet."""
        self._expiries: Final = _Times()
        self._heartbeats: Final = _Times()

    def __len__(self) -> int:
        return len(self._waiting)

    def is_full(self, config: ConsumerConfig) -> bool:
        """Return whether no further request may wait."""
        return len(self._waiting) >= min(config.max_waiting, MAX_WAITING_MAX)

    def add(self, request: PullRequest, config: ConsumerConfig) -> None:
        """Queue a request.

        Raises:
            PullRefusedError: too many wait.
            NoRoomError: too many wait at all consumers, or too many of this client.
        """
        if self.is_full(config):
            raise PullRefusedError(_TOO_MANY)
        if not self._shares.take(request.client, request.memory):
            raise NoRoomError(_TOO_MANY)
        self._waiting[request] = None
        if request.expires is not None:
            self._expiries.add(request.expires, request)
        elif request.is_no_wait:
            self._no_wait[request] = None
        if request.heartbeat_at is not None:
            self._heartbeats.add(request.heartbeat_at, request)

    def first(self) -> PullRequest | None:
        """Return the request that gets the next message."""
        return next(iter(self._waiting), None)

    def postpone(self, request: PullRequest) -> None:
        """Move a request to the end of the queue."""
        self._waiting.move_to_end(request)

    def remove(self, request: PullRequest) -> None:
        """Remove a request."""
        del self._waiting[request]
        self._shares.give_back(request.client, request.memory)
        self._no_wait.pop(request, None)
        for times in (self._expiries, self._heartbeats):
            times.shrink(self._waiting)

    def waits(self, request: PullRequest) -> bool:
        """Return whether a request is still queued."""
        return request in self._waiting

    def all(self) -> list[PullRequest]:
        """Return all requests."""
        return list(self._waiting)

    def all_no_wait(self) -> list[PullRequest]:
        """Return the requests that do not wait for messages that are not there yet."""
        return list(self._no_wait)

    def sent(self, request: PullRequest, size: int, now: float) -> bool:
        """Count a message that was sent; return whether the request has all its messages."""
        request.batch -= 1
        request.sent += 1
        if request.bytes_max:
            request.bytes_max = max(request.bytes_max - size, 0)
        if request.heartbeat_at is not None:
            request.heartbeat_at = now + request.heartbeat
        if not request.batch:
            self.remove(request)
            return True
        # Requests take turns.
        self._waiting.move_to_end(request)
        return False

    def expired(self, now: float) -> list[PullRequest]:
        """Remove and return some requests whose time is up; `next_due` says whether there are more."""
        found: list[PullRequest] = []
        while len(found) < ENDED_AT_ONCE and (request := self._expiries.pop_due(now)) is not None:
            if request in self._waiting:
                found.append(request)
                self.remove(request)
        return found

    def due_heartbeats(self, now: float) -> list[PullRequest]:
        """Return some requests that get a sign of life now; `next_due` says whether there are more."""
        found: list[PullRequest] = []
        while len(found) < ENDED_AT_ONCE and (request := self._heartbeats.pop_due(now)) is not None:
            if request not in self._waiting:
                continue
            assert request.heartbeat_at is not None, "a request without heartbeats is not among them"
            if request.heartbeat_at <= now:
                found.append(request)
                request.heartbeat_at = now + request.heartbeat
            # Otherwise it got a message meanwhile, which was a sign of life.
            self._heartbeats.add(request.heartbeat_at, request)
        return found

    def next_due(self) -> float | None:
        """Return when the next request expires or gets a sign of life, or an earlier time."""
        times = self._expiries.first(self._waiting), self._heartbeats.first(self._waiting)
        return min((each for each in times if each is not None), default=None)

    def clear(self) -> list[PullRequest]:
        """Remove and return all requests."""
        found = list(self._waiting)
        for each in found:
            self.remove(each)
        return found


class _Times:
    """Requests ordered by a time; requests that have ended are dropped when they come first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, PullRequest]] = []
        self._added = 0

    def add(self, time: float, request: PullRequest) -> None:
        self._added += 1
        heappush(self._heap, (time, self._added, request))

    def first(self, waiting: Container[PullRequest]) -> float | None:
        heap = self._heap
        while heap and heap[0][2] not in waiting:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> PullRequest | None:
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def shrink(self, waiting: Collection[PullRequest]) -> None:
        """Forget requests that wait no more: their times may be far away."""
        if len(self._heap) > 2 * len(waiting) + 64:
            self._heap = [each for each in self._heap if each[2] in waiting]
            heapify(self._heap)
