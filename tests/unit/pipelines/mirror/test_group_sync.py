"""The offsets of groups are carried to the copies, and never back."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.group_sync import GroupSync
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs, runs_of

PARTITION = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
Committed = Outcomes[TopicPartition, OffsetAndMetadata | None]


class Cluster:
    """An admin client that knows the offsets of some groups and remembers what is altered."""

    def __init__(
        self, groups: Mapping[str, Committed], failed: Mapping[str, ClientError] | None = None
    ) -> None:
        self.groups = groups
        self.failed = failed
        self.altered: dict[str, Mapping[TopicPartition, int]] = {}

    def list_consumer_groups(self) -> object:
        return Listing([SimpleNamespace(group_id=each) for each in self.groups])

    def list_consumer_group_offsets(self, _: object, *, outcomes: bool) -> Outcomes[str, Committed]:
        return Outcomes(self.groups, self.failed)

    def alter_consumer_group_offsets(
        self, moved: Mapping[str, Mapping[TopicPartition, int]], *, outcomes: bool
    ) -> object:
        self.altered |= moved
        return Outcomes(dict.fromkeys(moved, Outcomes({})))


def carried(target: Cluster) -> Mapping[str, Mapping[TopicPartition, int]]:
    """What is written for a group that is at offset 50 of both partitions of the source."""
    committed: Committed = Outcomes({PARTITION: OffsetAndMetadata(50), OTHER: OffsetAndMetadata(50)})
    source = Cluster({"billing": committed})
    syncs = OffsetSyncs()
    syncs.add(runs_of([np.arange(100)], [(0, 100)]))
    sync = GroupSync(cast(Admin, source), cast(Admin, target))
    sync.write(
        sync.translate({each: each for each in (PARTITION, OTHER)}, dict.fromkeys((PARTITION, OTHER), syncs))
    )
    return target.altered


def test_a_group_that_is_not_in_the_target_gets_its_offsets() -> None:
    """A coordinator answers for such a group without offsets."""
    assert {"billing": {PARTITION: 50, OTHER: 50}} == carried(Cluster({"billing": Outcomes({})}))


def test_no_offset_goes_back() -> None:
    """A consumer may have moved to the target already."""
    there: Committed = Outcomes({PARTITION: OffsetAndMetadata(70), OTHER: OffsetAndMetadata(10)})
    assert {"billing": {OTHER: 50}} == carried(Cluster({"billing": there}))


def test_offsets_that_the_target_does_not_return_stay_as_they_are() -> None:
    """They may be ahead: the coordinator is loading, or the mirror may not read the group."""
    error = ClientError("the coordinator is loading")
    assert {} == carried(Cluster({}, {"billing": error}))
    there: Committed = Outcomes({OTHER: OffsetAndMetadata(10)}, {PARTITION: error})
    assert {"billing": {OTHER: 50}} == carried(Cluster({"billing": there}))


def test_groups_whose_offsets_cannot_be_read_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They are left out of the round, which must not look as if they had no offsets."""
    error = ClientError("the coordinator is loading")
    known: Committed = Outcomes({PARTITION: OffsetAndMetadata(50)}, {OTHER: error})
    source = Cluster({"billing": known}, {"audit": error})
    sync = GroupSync(cast(Admin, source), cast(Admin, source))
    sync.translate({}, {})

    messages = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [
        "offsets of group audit are not carried over: the coordinator is loading",
        f"the offset of group billing in {OTHER} is not carried over: the coordinator is loading",
    ] == messages
