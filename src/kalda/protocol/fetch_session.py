"""Counts the requests of an incremental fetch session (KIP-227), for both of its sides. Sans-IO.

A session lets a leader remember the partitions of the last fetch, so that a request names only what changed.
Both sides count the requests of a session; 0 is the epoch of a full request, which names every partition and
opens a session. `FetchSessionHandler` keeps the id and the epoch of a consumer's or a follower's session.
Which partitions a request names, and how it is encoded, differs between the two and is theirs.
"""

from typing import Final

from kalda.common.errors import ErrorCode

SESSIONS_FROM: Final = 7
"""The first version of Fetch with sessions."""
TOPIC_IDS_FROM: Final = 13
"""The first version of Fetch that names topics by id; a session keeps to names or to ids."""

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""Closes the session, or asks for none."""
EPOCH_MAX: Final = 0x7FFFFFFF


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`; it wraps to 1, because 0 means a full request."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class FetchSessionHandler:
    """The requesting side of the session with one broker; one request at a time.

    A subclass sends `_id` and `_epoch` with each request, and sets `_is_awaited` with a full one. After an
    error of any kind the next request is a full one. It has the id of the session before, if the broker may
    still have that, and so closes it.
    """

    def __init__(self) -> None:
        self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._is_awaited = False
        """Whether the response to the last full request may open a session: not after `restart`, as the
        partitions may have changed since that request was sent."""
        self._is_refused = False
        """Whether the broker opened no session for the last full request."""

    @property
    def is_open(self) -> bool:
        """Whether the broker may hold a session."""
        return self._id != INVALID_SESSION_ID

    @property
    def is_full(self) -> bool:
        """Whether the next request names every partition."""
        return self._epoch == INITIAL_EPOCH

    def restart(self, *, is_gone: bool = False) -> None:
        """Send a full request next, because the broker may or may not have counted the last one.

        With `is_gone` the broker has no session of this side any more.
        """
        self._epoch = INITIAL_EPOCH
        self._is_awaited = False
        if is_gone:
            self._id = INVALID_SESSION_ID

    def accepted(self, session_id: int) -> None:
        """Take the session id of a response without an error; 0 if the broker has no session."""
        epoch = self._epoch
        self._id = session_id
        if session_id == INVALID_SESSION_ID:
            self._is_refused = epoch == INITIAL_EPOCH
            self._epoch = INITIAL_EPOCH
        elif epoch != INITIAL_EPOCH:
            self._epoch = next_epoch(epoch)
        else:
            self._is_refused = False
            if self._is_awaited:
                self._epoch = 1

    def refused(self, error_code: int) -> None:
        """Take the error of a response."""
        self.restart(is_gone=error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
