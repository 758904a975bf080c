"""Implements a share consumer that reports deliveries and acknowledgements: `WatchedShareConsumer`."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from kalda.clients.errors import ClientError
from kalda.clients.share.acquired_records import AcquiredRecords
from kalda.clients.share.async_share_consumer import AsyncShareConsumer
from kalda.clients.share.share_core import ShareCore
from kalda.clients.share.share_fetcher import Decided
from kalda.common.overriding import override
from kalda.common.types import TopicPartition


class ShareWatcher(Protocol):
    """Gets the reports of the members of a group; each is named by its member id."""

    def acquired(self, member: str, acquired: AcquiredRecords) -> None:
        """Note the records that a response delivered."""
        ...

    def sent(self, member: str, decided: Sequence[Decided]) -> None:
        """Note acknowledgements that were sent."""
        ...

    def answered(
        self, member: str, partition: TopicPartition, offsets: Sequence[int], error: ClientError | None
    ) -> None:
        """Note the outcome of acknowledgements."""
        ...


class _WatchedCore(ShareCore):
    """A core that reports."""

    watcher: ShareWatcher

    @property
    def member_id(self) -> str:
        """The id that the client made for itself."""
        return self._member.member_id

    @override
    def collect(self) -> list[Decided]:
        found = super().collect()
        self.watcher.sent(self.member_id, found)
        return found

    @override
    def _add_records(self, acquired: AcquiredRecords) -> None:
        self.watcher.acquired(self.member_id, acquired)
        super()._add_records(acquired)


class WatchedShareConsumer(AsyncShareConsumer[bytes, bytes]):
    """A share consumer of one topic whose core reports to a watcher; options are those of the base class."""

    def __init__(self, watcher: ShareWatcher, topic: str, **options: Any) -> None:
        self._watcher: Final = watcher
        super().__init__(topic, on_acknowledged=self._answered, **options)

    @override
    async def start(self) -> None:
        if self._core is None:
            self._loop = asyncio.get_running_loop()
            self._core = core = _WatchedCore(
                self._setup.config, self._setup.deserializers, self._on_ready, self._on_outcome
            )
            core.watcher = self._watcher
            core.start()
            await self.subscribe(self._initial)

    @property
    def member_id(self) -> str:
        """The id of the member; it has one once it is started."""
        assert isinstance(self._core, _WatchedCore), "the consumer is not started"
        return self._core.member_id

    def _answered(self, partition: TopicPartition, offsets: Sequence[int], error: ClientError | None) -> None:
        self._watcher.answered(self.member_id, partition, offsets, error)
