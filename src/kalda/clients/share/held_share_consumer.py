"""Implements a share consumer that acknowledges records after later polls, and renews their locks.

Workers and the transports of task queues are built on it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from kalda.clients.consumer.consumer_errors import (
    FetchCorruptionError,
    RecordDeserializationError,
    WakeupError,
)
from kalda.clients.errors import IllegalStateError
from kalda.clients.share.acknowledgements import AcknowledgeType, reason_of
from kalda.clients.share.async_share_consumer import LOOK_SECONDS, AsyncShareConsumer
from kalda.clients.share.share_record import ShareRecord
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

RENEWALS: Final = 3
"""How often in the time of a lock it is renewed, so that one that comes late does no harm."""


class HeldShareConsumer(AsyncShareConsumer[Any, Any]):
    """A consumer in explicit mode that polls while records of earlier polls are under way."""

    async def poll_some(self, timeout_s: float, count: int) -> list[ShareRecord[Any, Any]]:
        """Return up to `count` records, as `poll`, even while earlier ones are not acknowledged."""
        self.send()
        core = self._open_core()
        with self._polling(), core.poll_times:
            return await self._wait(core, timeout_s, count, lambda: core.take(count)) or []

    def send(self) -> None:
        """Send acknowledgements, and have the group know that the worker lives."""
        core = self._open_core()
        core.polled(core.begin_commit())

    def give_back(self) -> None:
        """Make `close` return unacknowledged records to the group as if they had not been delivered."""
        if self._core is not None:
            self._core.give_back_undecided()

    @property
    def lock_s(self) -> float:
        """How long locks last; 0 while that is not known."""
        return self._open_core().lock_s

    @property
    def look_s(self) -> float:
        """How often to look for locks to renew."""
        lock_s = self.lock_s
        return min(LOOK_SECONDS, lock_s / RENEWALS / 2) if lock_s > 0 else LOOK_SECONDS


@dataclass(slots=True)
class _Held:
    """A record that is not settled."""

    record: ShareRecord[Any, Any]
    renew_at: float


class ShareIntake:
    """Takes records as there is room, and keeps their locks until each is settled; on one event loop.

    Records that cannot be read are rejected.

    Args:
        consumer: A consumer that is started, in explicit mode with `share.acquire.mode`=record_limit.
        room: Returns how many more records may be taken now.
        on_record: Called with a number and the record that it stands for.
    """

    def __init__(
        self,
        consumer: HeldShareConsumer,
        room: Callable[[], int],
        on_record: Callable[[int, ShareRecord[Any, Any]], None],
    ) -> None:
        self._consumer: Final = consumer
        self._room: Final = room
        self._on_record: Final = on_record
        self._loop: Final = asyncio.get_running_loop()
        self._held: Final[dict[int, _Held]] = {}
        self._numbers: Final = count(1)
        self._changed: Final = asyncio.Event()
        self._is_send_due = self._is_stopped = False

    @property
    def held_count(self) -> int:
        """How many records are not settled."""
        return len(self._held)

    async def run(self) -> None:
        """Take records and renew locks, until it is cancelled.

        Raises:
            ClientError: the cluster refuses the consumer.
        """
        consumer = self._consumer
        while True:
            self._renew()
            room = 0 if self._is_stopped else self._room()
            if room <= 0:
                await self._wait_changed(consumer.look_s)
                consumer.send()
                continue
            try:
                records = await consumer.poll_some(consumer.look_s, room)
            except WakeupError:
                continue
            except RecordDeserializationError as error:
                logger.warning("A record is rejected: %s", error)
                cause = error.__cause__ or error
                consumer.acknowledge(error, AcknowledgeType.REJECT, reason=reason_of(cause))
                continue
            except FetchCorruptionError as error:
                logger.error("Records are rejected: %s", error)
                continue
            renew_at = self._loop.time() + consumer.lock_s / RENEWALS
            for record in records:
                number = next(self._numbers)
                self._held[number] = _Held(record, renew_at)
                self._on_record(number, record)

    def settle(
        self, number: int, kind: AcknowledgeType, delay_s: float | None = None, reason: str | None = None
    ) -> None:
        """Acknowledge a record, as `AsyncShareConsumer.acknowledge`; a second call does nothing."""
        held = self._held.pop(number, None)
        if held is None:
            return
        self._acknowledge(held.record, kind, delay_s, reason)
        self._changed.set()
        if not self._is_send_due:
            # Once for all records that are settled in this turn of the loop.
            self._is_send_due = True
            self._loop.call_soon(self._send)

    def stop(self) -> None:
        """Take no more records; those that are held stay until they are settled."""
        self._is_stopped = True
        self._changed.set()
        self._consumer.wakeup()

    def resume(self) -> None:
        """Take records again after `stop`."""
        self._is_stopped = False
        self._changed.set()

    def look(self) -> None:
        """Ask for the room again, because it has changed."""
        self._changed.set()

    def _renew(self) -> None:
        lock_s = self._consumer.lock_s
        if lock_s <= 0:
            return
        now = self._loop.time()
        for held in self._held.values():
            if now >= held.renew_at:
                held.renew_at = now + lock_s / RENEWALS
                self._acknowledge(held.record, AcknowledgeType.RENEW)

    def _acknowledge(
        self,
        record: ShareRecord[Any, Any],
        kind: AcknowledgeType,
        delay_s: float | None = None,
        reason: str | None = None,
    ) -> None:
        try:
            self._consumer.acknowledge(record, kind, delay_s=delay_s, reason=reason)
        except IllegalStateError as error:
            # Its lock had ended, and this consumer may have got it a second time; or the consumer is closed.
            logger.warning("%s", error)

    def _send(self) -> None:
        self._is_send_due = False
        with contextlib.suppress(IllegalStateError):
            self._consumer.send()

    async def _wait_changed(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()
