"""Keeps the key of a session, which lives as long as its lease and fences the session's writes. Sans-IO.

Each request with writes depends on the key's version and raises it (`kalda.etcd.batch`), as do other writes
of the session. The value says whether the last change was a request's.
"""

from typing import Final

from kalda.etcd import messages
from kalda.etcd.keys import Keys
from kalda.etcd.link import LeaseGoneError
from kalda.etcd.messages import KeyValue, RangeResponse, TxnResponse

REQUEST_VALUE: Final = b"request"
"""The key's value behind a request with writes."""

_OTHER_VALUE: Final = b""


class Fence:
    """The key of one session at a time; it is the same object for all sessions of a client."""

    def __init__(self, keys: Keys) -> None:
        self._keys: Final = keys
        self.lease = 0
        """The lease, which is the session's id; 0 without a session."""
        self.version = 0
        """The version of the key, as far as known."""

    @property
    def key(self) -> bytes:
        """The session's key."""
        return self._keys.session(self.lease)

    @property
    def holds(self) -> bytes:
        """The condition that the key has the known version."""
        return messages.compare(messages.EQUAL, messages.VERSION, self.key, self.version)

    def put(self, *, is_request: bool = False) -> bytes:
        """Return the operation that raises the version."""
        value = REQUEST_VALUE if is_request else _OTHER_VALUE
        return messages.put_op(self.key, value, lease=self.lease)

    def read(self) -> bytes:
        """Return the operation that reads the key."""
        return messages.range_op(self.key)

    def found(self, response: TxnResponse) -> KeyValue:
        """Return the key as a transaction has found it that read it first.

        Raises:
            LeaseGoneError: there is no such key any more.
        """
        found = response.responses[0]
        assert isinstance(found, RangeResponse), f"{found!r} is no response of a read"
        if not found.kvs:
            raise LeaseGoneError(f"session {self.lease:#x} is over")
        return found.kvs[0]
