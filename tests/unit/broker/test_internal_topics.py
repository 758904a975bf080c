"""Coordinators on a broker: the roles, logs and high watermarks of an internal topic's partitions."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.metrics import Metrics
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.controller.effects import StopReplica
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState, RuntimeConfig
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.settings import BrokerConfig
from tests.unit.broker.data_path_fakes import BROKER_ID, TOPIC_ID, DataPath, leadership
from tests.unit.coordinator.fakes import FakeLoop, TableShard, record

FOLLOWER = 2
P = 3


class Bench:
    """A broker with the coordinators of one internal topic."""

    def __init__(self, directory: Path) -> None:
        self.broker = DataPath(directory)
        self.loop = FakeLoop(self.broker.clock)
        config = cast(
            "BrokerConfig",
            SimpleNamespace(
                offsets_topic_num_partitions=50,
                transaction_state_log_num_partitions=50,
                share_coordinator_state_topic_num_partitions=50,
            ),
        )
        self.internal_topics = InternalTopics(
            config,
            self.broker.clock,
            self.broker.cache,
            self.broker.replicas,
            cast("TopicAdmin", None),
            self.loop,
        )
        self.runtime: CoordinatorRuntime[TableShard] = self.internal_topics.add(
            TableShard, RuntimeConfig(GROUP_METADATA_TOPIC), Metrics()
        )

    def role(self, leader: int, epoch: int, replicas: tuple[int, ...] = (BROKER_ID,)) -> None:
        self.broker.host(
            leadership(P, topic=GROUP_METADATA_TOPIC, leader=leader, leader_epoch=epoch, replicas=replicas)
        )
        self.loop.settle()

    def put(self, key: str) -> Pending[Any]:
        return self.runtime.write(P, lambda _: Result((record(key, "1"),), "done"), timeout_ms=1000)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.internal_topics.close()
    made.broker.close()


def code(pending: Pending[Any]) -> ErrorCode:
    assert isinstance(pending.error, ApiError)
    return pending.error.code


def test_whoever_leads_a_partition_coordinates_it_and_loads_what_is_there(bench: Bench) -> None:
    bench.role(BROKER_ID, 1)
    assert "done" == bench.put("a").value
    bench.role(FOLLOWER, 2, (BROKER_ID, FOLLOWER))
    assert code(bench.put("b")) is ErrorCode.NOT_COORDINATOR
    bench.role(BROKER_ID, 3, (BROKER_ID, FOLLOWER))
    assert {b"a": b"1"} == bench.runtime.shard(P).table
    assert 3 == bench.runtime.leader_epoch(P)


def test_answers_wait_for_the_followers(bench: Bench) -> None:
    bench.role(BROKER_ID, 1, (BROKER_ID, FOLLOWER))
    written = bench.put("a")
    assert not written.is_done
    bench.broker.fetch_request(
        {P: 1}, version=11, replica_id=FOLLOWER, topic=GROUP_METADATA_TOPIC, current_leader_epoch=1
    )
    assert "done" == written.value


def test_a_deleted_topic_made_anew_is_coordinated_again(bench: Bench) -> None:
    bench.role(BROKER_ID, 7)
    bench.put("a")
    name = TopicPartition(GROUP_METADATA_TOPIC, P)
    bench.broker.replicas.roles.apply_stop_replica(StopReplica(1, 1, [name], True, {}))
    assert {} == bench.runtime.states()
    bench.role(BROKER_ID, 0)
    assert {P: PartitionState.ACTIVE} == bench.runtime.states()
    assert {} == bench.runtime.shard(P).table


def test_after_the_end_nothing_is_coordinated(bench: Bench) -> None:
    bench.internal_topics.close()
    bench.role(BROKER_ID, 1)
    assert {} == bench.runtime.states()


def test_other_topics_are_nobodys(bench: Bench) -> None:
    bench.broker.host(leadership(topic_id=TOPIC_ID))
    assert {} == bench.runtime.states()
    assert not bench.internal_topics.is_served("__transaction_state")
    bench.internal_topics.complete_transaction("__transaction_state", 0, 1, 0, committed=True)
