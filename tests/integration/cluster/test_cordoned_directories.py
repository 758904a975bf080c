"""`cordoned.log.dirs` (KIP-1066), set while brokers run: new replicas stay away, those that exist remain."""

import contextlib
from collections import Counter
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kalda import Admin, AlterConfigOp, ConfigResource, NewTopic, Producer
from kalda.clients.admin.log_dirs import TopicPartitionReplica
from kalda.clients.errors import BrokerResponseError
from kalda.cluster import paths
from kalda.cluster.schema import decode_broker
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.testing import Cluster
from tests.integration.cluster.helpers import wait_until

SETTING = "cordoned.log.dirs"


def cordon(admin: Admin, broker: int, directories: str | None) -> None:
    change = AlterConfigOp.delete(SETTING) if directories is None else AlterConfigOp.set(SETTING, directories)
    admin.incremental_alter_configs({ConfigResource.broker(broker): [change]})


def brokers_of(admin: Admin, topic: str) -> set[int]:
    described = admin.describe_topics([topic]).results[topic]
    return {replica for each in described.partitions for replica in each.replicas}


def test_a_cordoned_broker_gets_no_replicas(tmp_path: Path) -> None:
    with Cluster(3, directory=tmp_path) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("before", partitions=6, replication_factor=2)])
        assert {0, 1, 2} == brokers_of(admin, "before")
        cordon(admin, 1, "*")
        wait_until(lambda: is_cordoned(cluster, 1))
        admin.create_topics([NewTopic("after", partitions=6, replication_factor=2)])
        assert {0, 2} == brokers_of(admin, "after")
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            # Any broker creates this one.
            producer.send("of-itself", b"v").result(30)
            # A broker that is cordoned goes on with what it has.
            for partition in range(6):
                producer.send("before", b"v", partition=partition).result(30)
        assert brokers_of(admin, "of-itself") <= {0, 2}
        failed = admin.create_topics(
            [NewTopic("too-many", partitions=1, replication_factor=3)], outcomes=True
        ).errors
        assert ErrorCode.INVALID_REPLICATION_FACTOR == code_of(failed["too-many"])
        moved = TopicPartition("after", 0)
        refused = admin.alter_partition_reassignments({moved: [0, 1]}, outcomes=True).errors[moved]
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == code_of(refused)
        # The setting is stored, so that the broker is cordoned when it comes back.
        cluster.restart(1)
        wait_until(lambda: is_cordoned(cluster, 1))
        cordon(admin, 1, None)
        wait_until(lambda: not is_cordoned(cluster, 1))
        admin.create_topics([NewTopic("again", partitions=6, replication_factor=2)])
        assert {0, 1, 2} == brokers_of(admin, "again")


def test_a_cordoned_directory_gets_no_logs(tmp_path: Path) -> None:
    with (
        Cluster(1, directory=tmp_path, log_directories_per_broker=2) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        first, second = map(str, cluster.log_directories_of(0))
        admin.create_topics([NewTopic("before", partitions=4, replication_factor=1)])
        assert {first: 2, second: 2} == logs_by_directory(admin, "before")
        with pytest.raises(BrokerResponseError, match="is not among the log directories"):
            cordon_unchecked(admin, "/nowhere")
        cordon(admin, 0, second)
        assert {first: False, second: True} == {
            path: each.is_cordoned for path, each in admin.describe_log_dirs([0]).results[0].items()
        }
        admin.create_topics([NewTopic("after", partitions=4, replication_factor=1)])
        assert {first: 4} == logs_by_directory(admin, "after")
        replica = TopicPartitionReplica("after", 0, 0)
        refused = admin.alter_replica_log_dirs({replica: second}, outcomes=True).errors[replica]
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == code_of(refused)
        assert not is_cordoned(cluster, 0)


def cordon_unchecked(admin: Admin, directories: str) -> None:
    broker = ConfigResource.broker(0)
    admin.incremental_alter_configs({broker: [AlterConfigOp.set(SETTING, directories)]})


def logs_by_directory(admin: Admin, topic: str) -> dict[str, int]:
    found = admin.describe_log_dirs([0]).results[0]
    return dict(
        Counter(
            path
            for path, each in found.items()
            for partition in each.replica_infos
            if partition.topic == topic
        )
    )


def is_cordoned(cluster: Cluster, broker: int) -> bool:
    """Whether the broker's registration says that it gets no new replicas."""
    with contextlib.closing(KazooClient(cluster.zookeeper)) as client:
        client.start()
        try:
            registration, _ = client.get(paths.broker(broker))
        except NoNodeError:
            return False
        finally:
            client.stop()
    return decode_broker(broker, registration).is_cordoned


def code_of(error: Exception) -> ErrorCode:
    assert isinstance(error, BrokerResponseError)
    return error.code
