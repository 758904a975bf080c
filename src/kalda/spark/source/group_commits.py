"""Commits the progress of a query in the background, so that Kafka's tools show its lag.

The stream reader offers the start of each `latestOffset`, which is what the sink has committed (`commit` of
the reader is not called for the last batch of `availableNow`). Of several offers that wait, the newest alone
is sent.

Nothing here may fail or delay a query. An offer returns at once, a failure is a warning, and each kind of
failure is reported once.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.spark.source.group_offsets import Committed, OffsetStore

logger: Final = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 600.0
"""Unchanged progress is committed again after this long: brokers drop the offsets of a group that is idle for
`offsets.retention.minutes` (7 days), and someone may have deleted the group."""

_Offsets = Mapping[TopicPartition, Committed]


class LagCommits:
    """The commits of one query."""

    def __init__(
        self, store: OffsetStore, group_id: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store: Final = store
        self._group_id: Final = group_id
        self._monotonic: Final = monotonic
        self._changed: Final = threading.Condition()
        self._waiting: _Offsets | None = None
        self._is_sending = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        # Only the sending thread uses the following three.
        self._sent: _Offsets = {}
        self._sent_at = 0.0
        self._reported: Final[set[str]] = set()

    def offer(self, offsets: _Offsets) -> None:
        """Commit these offsets soon, unless newer ones are offered before."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting = dict(offsets)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kalda-lag-commits", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until all that was offered is sent; return whether it is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._waiting is None and not self._is_sending, timeout_seconds
            )

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Send what waits, for so long at most, and end the thread."""
        self.flush(timeout_seconds)
        with self._changed:
            self._is_closed = True
            self._waiting = None
            self._changed.notify_all()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)

    def send(self, offsets: _Offsets) -> None:
        """Commit offsets now; failures become warnings."""
        now = self._monotonic()
        if offsets == self._sent and now - self._sent_at < REPEAT_SECONDS:
            return
        try:
            failed = self._store.write(offsets)
        except ClientError as error:
            self._report(f"{type(error).__name__}", f"{error}")
            return
        for partition, failure in failed.items():
            code = failure.code if isinstance(failure, BrokerResponseError) else None
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
                self._report(
                    "members",
                    "the group has consumers of its own; set `kafka.group.id` or `groupIdPrefix` to a group "
                    "that no consumer uses",
                )
            else:
                self._report(f"{code}", f"{partition}: {failure}")
        if not failed:
            self._sent, self._sent_at = offsets, now

    def _report(self, kind: str, text: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            logger.warning(
                "the progress of this query is not committed to group %s: %s. The query goes on, and its "
                "checkpoint is complete; only tools that show the lag do not see it",
                self._group_id,
                text,
            )

    def _run(self) -> None:
        try:
            while (offsets := self._next()) is not None:
                try:
                    self.send(offsets)
                except Exception:
                    # A defect here must not end the thread in silence, nor the query.
                    logger.exception("committing progress to group %s failed", self._group_id)
                finally:
                    with self._changed:
                        self._is_sending = False
                        self._changed.notify_all()
        finally:
            self._store.close()

    def _next(self) -> _Offsets | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
            offsets, self._waiting = self._waiting, None
            self._is_sending = offsets is not None
            return offsets
