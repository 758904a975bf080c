"""The hook by which a classic group becomes a consumer group when its first consumer member joins."""

from typing import Protocol

from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.group import Group

__all__ = ["Upgrade"]


class Upgrade(Protocol):
    """Turns a group into a consumer group."""

    def __call__(self, group: Group, records: list[CoordinatorRecord]) -> ConsumerGroup | None:
        """The group as it will be when `records`, which are added to, are replayed; None if it may not be."""
        ...
