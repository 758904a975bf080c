"""A replica that was taken away while its broker could not be reached ends with the next full metadata."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.metadata.metadata_cache import TopicMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import NO_PARTITION_LEADER
from kalda.controller.effects import PartitionLeadership
from tests.unit.broker.data_path_fakes import TOPIC, TOPIC_ID, DataPath, batch, leadership
from tests.unit.broker.leading_fakes import BROKER_ID

ELSEWHERE = (2, 3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    """Return a broker that leads a partition with a record, in epoch 3."""
    made = DataPath(tmp_path)
    assert {} == made.host(leadership())
    made.produce(batch(b"a"))
    yield made
    made.close()


def compare(broker: DataPath, *states: PartitionLeadership) -> None:
    """Compare the replicas with metadata that has these partitions alone."""
    topics = {each.topic: TopicMetadata(each.topic, each.topic_id, {each.partition: each}) for each in states}
    broker.replicas.roles.leave_unassigned(topics.get)


def strays(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("*-stray")))


def is_hosted(broker: DataPath) -> bool:
    return bool(broker.replicas.partitions)


def test_a_replica_that_others_have_instead_is_set_aside(broker: DataPath, tmp_path: Path) -> None:
    """Its deletion was due when the controller failed; nobody requests it any more."""
    compare(broker, leadership(leader=2, leader_epoch=4, replicas=ELSEWHERE))
    assert (False, 1) == (is_hosted(broker), strays(tmp_path))
    assert ErrorCode.NONE is not broker.fetch().responses[0].partitions[0].error_code
    # It may come back, with an empty log.
    assert {} == broker.host(leadership(leader=2, leader_epoch=5, replicas=(BROKER_ID, 2)))
    assert 0 == broker.partition().log.log_end_offset


def test_a_replica_is_set_aside_after_a_restart_too(broker: DataPath, tmp_path: Path) -> None:
    broker.close()
    restarted = DataPath(tmp_path)
    compare(restarted, leadership(leader=2, leader_epoch=4, replicas=ELSEWHERE))
    restarted.close()
    assert 1 == strays(tmp_path)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "state",
    [
        pytest.param(leadership(leader=2, leader_epoch=2, replicas=ELSEWHERE), id="of an older epoch"),
        pytest.param(
            leadership(leader=NO_PARTITION_LEADER, leader_epoch=4, replicas=ELSEWHERE), id="nobody leads"
        ),
        pytest.param(
            leadership(leader=2, leader_epoch=4, replicas=ELSEWHERE, isr=(2, BROKER_ID)), id="it is in sync"
        ),
        pytest.param(leadership(leader=2, leader_epoch=4, replicas=(2, BROKER_ID)), id="it is assigned"),
        pytest.param(leadership(partition=1, leader=2, leader_epoch=4, replicas=ELSEWHERE), id="another"),
    ],
)
def test_a_replica_stays_where(
    broker: DataPath, tmp_path: Path, state: PartitionLeadership, *, restarts: bool
) -> None:
    if restarts:
        broker.close()
        broker = DataPath(tmp_path)
    compare(broker, state)
    assert (not restarts, 0) == (is_hosted(broker), strays(tmp_path))
    assert {} == broker.host(leadership(leader_epoch=5))
    assert 1 == broker.partition().log.log_end_offset
    broker.close()


def test_a_replica_of_a_topic_that_was_created_again_elsewhere_is_set_aside(
    broker: DataPath, tmp_path: Path
) -> None:
    """The epochs of the new topic begin below those of the old one."""
    other = uuid.UUID(int=99)
    assert other != TOPIC_ID
    compare(broker, leadership(topic_id=other, leader=2, leader_epoch=0, replicas=ELSEWHERE))
    assert (False, 1) == (is_hosted(broker), strays(tmp_path))


def test_the_log_of_a_topic_that_is_gone_stays_without_a_role(broker: DataPath, tmp_path: Path) -> None:
    """Its znode may have been lost: once it is back, the records are there."""
    compare(broker, leadership(topic="other"))
    assert (False, 0) == (is_hosted(broker), strays(tmp_path))
    assert {} == broker.host(leadership(leader_epoch=4))
    assert 1 == broker.partition().log.log_end_offset
    assert TOPIC == broker.partition().topic_partition.topic
