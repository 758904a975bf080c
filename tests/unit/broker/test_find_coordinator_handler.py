"""FindCoordinator: the leader of the partition that a key's hash names; topics are made when first needed."""

import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.requests.handlers.find_coordinator import error_response, handle
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kalda.common.errors import ErrorCode
from kalda.common.metrics import Metrics
from kalda.coordinator.partitioning import partition_of
from kalda.coordinator.runtime.coordinator_runtime import RuntimeConfig
from kalda.protocol.messages.find_coordinator import (
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.unit.broker.data_path_fakes import DataPath, leadership
from tests.unit.broker.handler_parts import finished
from tests.unit.coordinator.fakes import FakeLoop, TableShard

PARTITIONS = 4


class FakeTopicAdmin:
    """Notes what is to be created, and answers as told."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.code = ErrorCode.LEADER_NOT_AVAILABLE

    async def auto_create(self, names: list[str]) -> dict[str, ErrorCode]:
        self.created.extend(names)
        return dict.fromkeys(names, self.code)


class Broker(DataPath):
    """A data path with internal topics, which a fake creates."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.topic_admin = FakeTopicAdmin()
        self.settings.offsets_topic_num_partitions = PARTITIONS
        self.settings.transaction_state_log_num_partitions = PARTITIONS
        self.settings.share_coordinator_state_topic_num_partitions = PARTITIONS
        admin = cast("Any", self.topic_admin)
        self.internal_topics = InternalTopics(
            self.settings, self.clock, self.cache, self.replicas, admin, FakeLoop(self.clock)
        )
        self.internal_topics.add(TableShard, RuntimeConfig(GROUP_METADATA_TOPIC), Metrics())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    path = Broker(tmp_path)
    path.host(leadership())
    yield path
    path.close()


def create_topic(broker: Broker, topic: str = GROUP_METADATA_TOPIC) -> None:
    """Make the topic as the controller does; broker 1 + number % 3 leads partition number."""
    broker.host(
        *(
            leadership(
                number,
                topic=topic,
                topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, topic),
                leader=leader,
                replicas=(leader, 1) if leader != 1 else (1,),
            )
            for number, leader in ((number, 1 + number % 3) for number in range(PARTITIONS))
        )
    )


async def find(broker: Broker, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    answer = finished(handle(broker.internal_topics, broker.cache, request, broker.context(version)))
    if isinstance(answer, FindCoordinatorResponse):
        return answer
    assert isinstance(answer, Coroutine)
    created: FindCoordinatorResponse = await answer
    return created


async def test_the_coordinator_leads_the_partition_of_the_key(broker: Broker) -> None:
    create_topic(broker)
    keys = [f"group-{number}" for number in range(30)]
    found = await find(broker, FindCoordinatorRequest(coordinator_keys=keys), 4)
    assert [
        Coordinator(key=key, node_id=node, host=f"host{node}", port=9092, error_code=0, error_message=None)
        for key, node in ((key, 1 + partition_of(key, PARTITIONS) % 3) for key in keys)
    ] == found.coordinators
    first = await find(broker, FindCoordinatorRequest(key=keys[0]), 3)
    assert (0, found.coordinators[0].node_id) == (first.error_code, first.node_id)


async def test_a_topic_that_does_not_exist_is_created_and_the_client_asks_again(broker: Broker) -> None:
    response = await find(broker, FindCoordinatorRequest(key="g"), 3)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == response.error_code
    assert [GROUP_METADATA_TOPIC] == broker.topic_admin.created
    create_topic(broker)
    response = await find(broker, FindCoordinatorRequest(key="g"), 3)
    assert 0 == response.error_code


async def test_too_few_brokers_for_the_topic_are_no_coordinator_yet(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topic_admin.code = ErrorCode.INVALID_REPLICATION_FACTOR
    response = await find(broker, FindCoordinatorRequest(key="g"), 3)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == response.error_code
    assert "INVALID_REPLICATION_FACTOR" in caplog.text


async def test_a_partition_without_leader_has_no_coordinator(broker: Broker) -> None:
    broker.host(*(leadership(number, topic=GROUP_METADATA_TOPIC, leader=-1) for number in range(PARTITIONS)))
    response = await find(broker, FindCoordinatorRequest(key="g"), 3)
    assert (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1) == (response.error_code, response.node_id)


@pytest.mark.parametrize(
    ("key_type", "expected"),
    [
        (KEY_TYPE_TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (KEY_TYPE_SHARE, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_not_served_is_refused_for_good(
    broker: Broker, key_type: int, expected: ErrorCode
) -> None:
    """A retriable error would keep a client waiting for its whole time-out."""
    response = await find(broker, FindCoordinatorRequest(key="k", key_type=key_type), 3)
    assert (expected, -1) == (response.error_code, response.node_id)
    assert not expected.retriable


async def test_transactional_ids_have_a_topic_of_their_own(broker: Broker) -> None:
    broker.internal_topics.add(TableShard, RuntimeConfig(TRANSACTION_STATE_TOPIC), Metrics())
    create_topic(broker, TRANSACTION_STATE_TOPIC)
    request = FindCoordinatorRequest(key="t", key_type=KEY_TYPE_TRANSACTION)
    response = await find(broker, request, 3)
    assert (0, 1 + partition_of("t", PARTITIONS) % 3) == (response.error_code, response.node_id)


async def test_an_unknown_listener_has_no_coordinator(broker: Broker) -> None:
    create_topic(broker)
    broker.connection.listener = "OTHER"
    response = await find(broker, FindCoordinatorRequest(key="g"), 3)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE == response.error_code


def test_an_error_is_told_in_the_form_that_was_asked() -> None:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    many = error_response(FindCoordinatorRequest(coordinator_keys=["a"]), code)
    assert [("a", code)] == [(each.key, each.error_code) for each in many.coordinators]
    assert code == error_response(FindCoordinatorRequest(key="a"), code).error_code
