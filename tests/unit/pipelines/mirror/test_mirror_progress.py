"""A mirror that cannot read its progress, or that of the mirrors back, does not guess."""

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.delivery import Delivery
from kalda.pipelines.mirror.mirror import Mirror, MirrorOptions, _passed
from kalda.pipelines.mirror.policy import GROUP_PREFIX, MirrorNames, NameFilter
from kalda.pipelines.mirror.progress import Origin, progress_metadata, read_origin
from kalda.pipelines.mirror.topic_sync import MirroredTopics

PARTITION = TopicPartition("orders", 0)
LOADING = ClientError("the coordinator is loading")


class Cluster:
    """An admin client whose coordinators return no offset of any group, but an error."""

    def __init__(self, *, silent_brokers: Mapping[int, ClientError] | None = None) -> None:
        self.silent_brokers = silent_brokers

    def list_consumer_groups(self) -> object:
        return Listing([SimpleNamespace(group_id=f"{GROUP_PREFIX}back")], self.silent_brokers)

    def list_consumer_group_offsets(self, groups: list[str], **_: object) -> object:
        if self.silent_brokers:
            return Outcomes({each: Outcomes({}) for each in groups})
        return Outcomes({each: Outcomes({}, {PARTITION: LOADING}) for each in groups})


def mirror(cluster: Cluster) -> Mirror:
    made = Mirror(
        MirrorOptions(
            name="there",
            source=ClusterSettings({}),
            target=ClusterSettings({}),
            names=MirrorNames("a", "b", NameFilter(re.compile("orders"))),
        )
    )
    made._source_admin = made._target_admin = cast(Admin, cluster)
    made._delivery = cast(Delivery, None)
    made._topics = MirroredTopics({PARTITION: PARTITION}, {PARTITION.topic: None}, {})
    return made


def test_progress_that_cannot_be_read_is_not_the_beginning() -> None:
    """The mirror would copy all records of the partition again."""
    with pytest.raises(ClientError, match="is loading"):
        mirror(Cluster())._find_positions([PARTITION])


@pytest.mark.parametrize("silent_brokers", [None, {2: LOADING}])
def test_a_mirror_back_is_not_overlooked(silent_brokers: Mapping[int, ClientError] | None) -> None:
    """Two mirrors would copy each other's records without an end."""
    with pytest.raises(ClientError, match="is loading"):
        mirror(Cluster(silent_brokers=silent_brokers))._copies_in_source()


def test_the_clusters_that_records_passed_are_committed() -> None:
    """Each of three mirrors in a circle of its own file sees the whole way, not only its neighbour."""
    made = Origin("b", "1", ("a", "c"))

    assert made == read_origin(progress_metadata("b->c", "orders", made))
    assert Origin("b", "1") == read_origin('{"mirror":"b->c","source":"b","topic":"orders","id":"1"}')
    assert {"orders": ("a", "b"), "users": ("c",)} == _passed(
        [
            ("a->b", "orders", Origin("b", "1", ("a",))),
            ("x", "orders", Origin("a", "2")),
            ("x", "users", Origin("c", "", ("",))),
        ]
    )
