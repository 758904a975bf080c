"""Tracks when sessions expire, and computes ZooKeeper's passwords of sessions.

Sans-IO: the caller passes the time. The data tree holds the sessions, so they survive a restart; this module
holds only their deadlines. A deadline is rounded up to a bucket: most heartbeats change nothing, and expiry
looks at whole buckets. A session never expires early, and at most one bucket and one check late.

Time in which the server itself did not run (stopped by a signal, starved, a long write) does not count: the
heartbeats that clients sent meanwhile wait in the sockets and must be read first.
"""

from collections.abc import Iterator
from typing import Final

from kalda.common import invariants

BUCKET_MS_MAX: Final = 500
"""A bucket is one tick wide, but never wider than this: failover waits for it."""

_STALL_TICKS: Final = 2
"""The server checks once per bucket; more than this many buckets between checks are a stall of its own."""


_PASSWORD_SEED: Final = 0xB3415C00
"""ZooKeeper's constant."""

PASSWORD_BYTES: Final = 16
"""As in ZooKeeper, whose clients expect no other size."""


class SessionTracker:
    """The deadlines of all sessions that can expire."""

    def __init__(self, tick_ms: int) -> None:
        self.bucket_ms: Final = min(tick_ms, BUCKET_MS_MAX)
        self._timeouts: dict[int, int] = {}
        self._buckets_of: dict[int, int] = {}
        """The bucket of each session. Invariant: the session is in that bucket's set and in no other."""
        self._buckets: dict[int, set[int]] = {}
        self._next_bucket: int | None = None
        """The first bucket that has not been emptied."""
        self._now_ms = 0.0
        """The time that counts for sessions: without the server's own stalls."""
        self._last_reading: float | None = None

    def __len__(self) -> int:
        return len(self._timeouts)

    def __iter__(self) -> Iterator[int]:
        return iter(self._timeouts)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._timeouts

    def timeout_ms(self, session_id: int) -> int | None:
        """Return a session's time-out, or None if the session is not tracked."""
        return self._timeouts.get(session_id)

    def add(self, session_id: int, timeout_ms: int) -> None:
        """Track a session from now on, or restart a tracked session with another time-out."""
        assert timeout_ms > 0, f"session {session_id:#x} has time-out {timeout_ms}"
        self._timeouts[session_id] = timeout_ms
        self._place(session_id, timeout_ms)

    def touch(self, session_id: int) -> None:
        """Record a heartbeat; does nothing if the session is not tracked."""
        timeout_ms = self._timeouts.get(session_id)
        if timeout_ms is not None:
            self._place(session_id, timeout_ms)

    def remove(self, session_id: int) -> None:
        """Stop tracking a session, if it is tracked."""
        if self._timeouts.pop(session_id, None) is not None:
            self._leave_bucket(session_id)

    def advance(self, reading_ms: float) -> list[tuple[int, int]]:
        """Advance to a reading of a monotonic clock; return the expired sessions with their time-outs.

        The expired sessions are no longer tracked.
        """
        if self._last_reading is not None:
            elapsed = reading_ms - self._last_reading
            self._now_ms += min(elapsed, self.bucket_ms * _STALL_TICKS)
        self._last_reading = reading_ms
        current = int(self._now_ms // self.bucket_ms)
        first = current if self._next_bucket is None else self._next_bucket
        due: list[int] = []
        for bucket in range(first, current + 1):
            due.extend(self._buckets.pop(bucket, ()))
        self._next_bucket = max(first, current + 1)
        for session_id in due:
            del self._buckets_of[session_id]
        expired = [(session_id, self._timeouts.pop(session_id)) for session_id in sorted(due)]
        if invariants.enabled:
            self.check_invariants()
        return expired

    def check_invariants(self) -> None:
        """Assert that each tracked session is in one bucket, and that no bucket is overdue."""
        placed = {session_id: bucket for bucket, ids in self._buckets.items() for session_id in ids}
        assert placed == self._buckets_of, f"sessions are in buckets {placed}, indexed {self._buckets_of}"
        assert placed.keys() == self._timeouts.keys(), f"{placed.keys() ^ self._timeouts.keys()} are lost"
        assert all(self._buckets.values()), f"{self._buckets} has empty buckets"
        oldest = min(self._buckets, default=None)
        is_due = oldest is not None and self._next_bucket is not None and oldest < self._next_bucket
        assert not is_due, f"bucket {oldest} was passed over, the next is {self._next_bucket}"

    def deadlines(self) -> list[tuple[float, list[int]]]:
        """Return the buckets in order: milliseconds from now until each is due, and its sessions."""
        return [
            (bucket * self.bucket_ms - self._now_ms, sorted(self._buckets[bucket]))
            for bucket in sorted(self._buckets)
        ]

    def _place(self, session_id: int, timeout_ms: int) -> None:
        # The bucket after the deadline's: when it is due, the deadline has passed.
        bucket = int((self._now_ms + timeout_ms) // self.bucket_ms) + 1
        if self._buckets_of.get(session_id) != bucket:
            self._leave_bucket(session_id)
            self._buckets_of[session_id] = bucket
            self._buckets.setdefault(bucket, set()).add(session_id)

    def _leave_bucket(self, session_id: int) -> None:
        bucket = self._buckets_of.pop(session_id, None)
        if bucket is not None:
            sessions = self._buckets[bucket]
            sessions.discard(session_id)
            if not sessions:
                del self._buckets[bucket]


def session_password(session_id: int) -> bytes:
    """Return the password that ZooKeeper gives to a session: everybody who knows the id can compute it.

    It is the first bytes of Java's random generator, seeded with the id.
    """
    seed = ((session_id ^ _PASSWORD_SEED) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    out = bytearray()
    while len(out) < PASSWORD_BYTES:
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        out += (seed >> 16).to_bytes(4, "little")
    return bytes(out)


def negotiate_timeout(asked_ms: int, min_ms: int, max_ms: int) -> int:
    """Return the requested time-out, limited to the server's range."""
    return max(min_ms, min(asked_ms, max_ms))
