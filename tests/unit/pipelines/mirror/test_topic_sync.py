"""Topics that are deleted while the mirror looks at them."""

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.policy import MirrorNames, NameFilter
from kalda.pipelines.mirror.topic_sync import TopicSync

GONE = BrokerResponseError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "describe configs")


class Cluster:
    """An admin client of a cluster whose topics have one partition and no settings."""

    def __init__(self, *, failed: str = "", error: ClientError = GONE, partitions: int = 1) -> None:
        self.failed = failed
        self.error = error
        self.partitions = partitions

    def describe_topics(self, names: list[str], *, outcomes: bool) -> Any:
        found = SimpleNamespace(partitions=range(self.partitions), topic_id=None)
        return Outcomes(dict.fromkeys(names, found))

    def describe_configs(self, resources: list[ConfigResource], *, outcomes: bool) -> Any:
        failed = [each for each in resources if each.name == self.failed]
        return Outcomes(
            {each: {} for each in resources if each not in failed}, dict.fromkeys(failed, self.error)
        )

    def create_partitions(self, counts: dict[str, int], *, outcomes: bool) -> Any:
        return Outcomes({}, dict.fromkeys(counts, self.error))


def found(source: Cluster, target: Cluster) -> list[TopicPartition]:
    names = MirrorNames("a", "b", NameFilter(re.compile(".*")))
    sync = TopicSync(cast(Admin, source), cast(Admin, target), names, sync_configs=True)
    return list(sync.bring_in_line(["orders", "users"]).targets)


def test_a_topic_that_is_deleted_meanwhile_does_not_fail_the_look() -> None:
    """The flow began again, with all that it reads then."""
    both = [TopicPartition("orders", 0), TopicPartition("users", 0)]

    assert both[1:] == found(Cluster(failed="orders"), Cluster())
    assert both == found(Cluster(), Cluster(failed="orders"))


def test_settings_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(ClientError, match="is loading"):
        found(Cluster(failed="orders", error=ClientError("is loading")), Cluster())


def test_a_copy_that_is_deleted_while_it_grows_is_tried_again() -> None:
    """A `MirrorError` would end the flow."""
    with pytest.raises(BrokerResponseError):
        found(Cluster(partitions=2), Cluster())
