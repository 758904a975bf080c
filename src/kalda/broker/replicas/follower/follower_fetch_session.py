"""The follower's half of an incremental fetch session (KIP-227): builds requests that name only what changed.

`FollowerFetchSession` decides what a request contains and encodes it; it neither sends requests nor parses
responses. Its cost grows with the changes since the last request, not with the partitions followed: two
thousand idle partitions cost one small request every half second.
"""

from struct import Struct
from typing import Final

from kalda.broker.replicas.follower.fetch_state import FetchState
from kalda.protocol.fast.wire import INT32, write_unsigned_varint
from kalda.protocol.fetch_session import FetchSessionHandler

REPLICA_STATE_FROM: Final = 15
"""The first version with the replica id and the broker epoch in a tag (KIP-903)."""

_HEAD_V12: Final = Struct(">iiiibii")
_HEAD_V15: Final = Struct(">iiibii")
_PARTITION: Final = Struct(">iiqiqix")
"""A partition's fields and, with the padding byte, its empty tags."""
_REPLICA_STATE: Final = Struct(">bbbiqx")
_ISOLATION_LEVEL: Final = 0
_NO_RACK: Final = b"\x01"
_NO_TAGS: Final = b"\x00"


class FollowerFetchSession(FetchSessionHandler):
    """The session with one leader; it outlives single connections."""

    def __init__(
        self,
        broker_id: int,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
        is_by_id: bool = True,
    ) -> None:
        """With `is_by_id` false, requests name topics by name: versions up to 12."""
        super().__init__()
        self.is_by_id: Final = is_by_id
        self._broker_id: Final = broker_id
        self._max_wait_ms: Final = max_wait_ms
        self._min_bytes: Final = min_bytes
        self._max_bytes: Final = max_bytes
        self._partition_max_bytes: Final = partition_max_bytes
        self._members: Final[dict[bytes, dict[int, FetchState]]] = {}
        self._count = 0
        self._changed: Final[dict[FetchState, None]] = {}
        """Members whose fields the next request must contain."""
        self._forgotten: Final[dict[tuple[bytes, int], None]] = {}
        """Partitions that were sent and are no members any more; the next request removes them."""

    def __len__(self) -> int:
        return self._count

    @property
    def max_wait_seconds(self) -> float:
        """How long a leader without records may hold a request."""
        return self._max_wait_ms / 1000

    def members(self) -> list[FetchState]:
        """Return the partitions that requests ask for."""
        return [state for states in self._members.values() for state in states.values()]

    def find(self, topic: bytes, index: int) -> FetchState | None:
        """Return the member with this topic, as `FetchState.topic` has it, and index; or None."""
        states = self._members.get(topic)
        return None if states is None else states.get(index)

    def add(self, state: FetchState) -> None:
        """Add a partition to the next request."""
        states = self._members.setdefault(state.topic, {})
        assert state.index not in states, f"{state} is asked for twice"
        states[state.index] = state
        self._count += 1
        state.is_sent = False
        self._changed[state] = None
        if (state.topic, state.index) in self._forgotten:
            # The leader's session still has the tenure before, with the bounds that it sent to it: a high
            # watermark that only that tenure got would not be sent again.
            self.restart()

    def change(self, state: FetchState) -> None:
        """Send a member's new fields with the next request."""
        self._changed[state] = None

    def remove(self, state: FetchState) -> None:
        """Remove a partition; does nothing if it is no member."""
        states = self._members.get(state.topic)
        if states is None or states.get(state.index) is not state:
            return
        del states[state.index]
        if not states:
            del self._members[state.topic]
        self._count -= 1
        self._changed.pop(state, None)
        if state.is_sent:
            self._forgotten[state.topic, state.index] = None

    def restart(self, *, is_gone: bool = False) -> None:
        """Name every partition in the next request; see `FetchSessionHandler.restart`."""
        super().restart(is_gone=is_gone)
        self._forgotten.clear()
        for state in self.members():
            state.is_sent = False
            self._changed[state] = None

    def request(self, version: int, broker_epoch: int) -> bytes:
        """Return the body of the next request; its partitions count as sent."""
        out = bytearray()
        # A request that opens a session does not wait, so that the bounds of all partitions are known at
        # once. Without a session every request is full, and has to wait.
        max_wait_ms = 0 if self.is_full and not self._is_refused else self._max_wait_ms
        head = (max_wait_ms, self._min_bytes, self._max_bytes, _ISOLATION_LEVEL, self._id, self._epoch)
        if version >= REPLICA_STATE_FROM:
            out += _HEAD_V15.pack(*head)
        else:
            out += _HEAD_V12.pack(self._broker_id, *head)
        if self.is_full:
            self._is_awaited = True
            self._changed.update(dict.fromkeys(self.members()))
            self._forgotten.clear()
        self._append_changed(out)
        self._append_forgotten(out)
        out += _NO_RACK
        if version >= REPLICA_STATE_FROM:
            out += _REPLICA_STATE.pack(1, 1, 13, self._broker_id, broker_epoch)
        else:
            out += _NO_TAGS
        return bytes(out)

    def _append_changed(self, out: bytearray) -> None:
        by_topic: dict[bytes, list[FetchState]] = {}
        for state in self._changed:
            by_topic.setdefault(state.topic, []).append(state)
        self._changed.clear()
        size = self._partition_max_bytes
        out += write_unsigned_varint(len(by_topic) + 1)
        for topic, states in by_topic.items():
            out += self._encoded(topic)
            out += write_unsigned_varint(len(states) + 1)
            for state in states:
                state.is_sent = True
                out += _PARTITION.pack(
                    state.index,
                    state.leader_epoch,
                    state.fetch_offset,
                    state.last_fetched_epoch,
                    state.log_start_offset,
                    size,
                )
            out += _NO_TAGS

    def _encoded(self, topic: bytes) -> bytes:
        return topic if self.is_by_id else write_unsigned_varint(len(topic) + 1) + topic

    def _append_forgotten(self, out: bytearray) -> None:
        by_topic: dict[bytes, list[int]] = {}
        for topic, index in self._forgotten:
            by_topic.setdefault(topic, []).append(index)
        self._forgotten.clear()
        out += write_unsigned_varint(len(by_topic) + 1)
        for topic, indexes in by_topic.items():
            out += self._encoded(topic)
            out += write_unsigned_varint(len(indexes) + 1)
            for index in indexes:
                out += INT32.pack(index)
            out += _NO_TAGS
