"""The coordinator is killed at each step of an offset commit: the offset is the old one or the new one."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kalda.testing import ProcessCluster
from tests.system.crashing_kalda import POINTS

PROGRAM = Path(__file__).parent / "crashing_kalda.py"
TOPIC, GROUP = "read", "readers"
WAIT_SECONDS = 60.0


def consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0}
    )


def commit(bootstrap: str, offset: int, seconds: float = WAIT_SECONDS) -> bool:
    """Commit until it is acknowledged; return whether it was, in time."""
    reader = consumer(bootstrap)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            try:
                (done,) = reader.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
            except KafkaException:
                time.sleep(0.1)
                continue
            if done.error is None:
                return True
    finally:
        reader.close()
    return False


def committed(bootstrap: str) -> int:
    """Read the offset, until somebody coordinates the group."""
    reader = consumer(bootstrap)
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while True:
            try:
                (found,) = reader.committed([TopicPartition(TOPIC, 0)], timeout=60)
                return int(found.offset)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        reader.close()


def wait_dead(cluster: ProcessCluster) -> int:
    """Return which broker died; its connections end a moment before the process does."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        dead = [number for number in range(3) if not cluster.broker(number).is_running]
        if dead:
            return dead[0]
        time.sleep(0.02)
    raise AssertionError("no broker died")


async def commit_once(bootstrap: str, offset: int) -> None:
    """Commit without the retries of a client, which would repeat it at the next coordinator."""
    connection = await connect(bootstrap.split(",")[0])
    try:
        request = FindCoordinatorRequest(key=GROUP)
        found = await connection.request(request, timeout_seconds=WAIT_SECONDS, version=0)
        assert isinstance(found, FindCoordinatorResponse)
    finally:
        connection.close()
    coordinator = await connect(f"{found.host}:{found.port}")
    try:
        partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata="")
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        await coordinator.request(
            OffsetCommitRequest(group_id=GROUP, topics=[topic]), timeout_seconds=WAIT_SECONDS, version=9
        )
    finally:
        coordinator.close()


async def connect(address: str) -> PeerConnection:
    host, _, port = address.rpartition(":")
    return await TcpDialer().dial(
        host, int(port), DialOptions(client_id="test", timeout_seconds=WAIT_SECONDS)
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("point", POINTS)
def test_an_offset_commit_is_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    """Whatever the first reader after the crash sees stays so, and further commits pass."""
    trigger = tmp_path / "trigger"
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "zookeeper.session.timeout.ms": "4000",
    }
    with ProcessCluster(
        tmp_path,
        settings=settings,
        broker_command=[sys.executable, str(PROGRAM), point, str(trigger)],
    ) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        assert commit(cluster.bootstrap, 1)
        trigger.touch()
        with pytest.raises(ConnectionError):
            asyncio.run(commit_once(cluster.bootstrap, 2))
        assert not trigger.exists(), "the commit did not come to the point"
        victim = wait_dead(cluster)
        seen = committed(cluster.bootstrap)
        legal = {"before-append": {1}, "after-append": {1, 2}, "before-answer": {2}}[point]
        assert seen in legal
        # It is dead already; this puts its pipe away.
        cluster.kill(victim)
        cluster.start(victim)
        assert seen == committed(cluster.bootstrap)
        assert commit(cluster.bootstrap, 3)
        assert 3 == committed(cluster.bootstrap)
