"""What a cluster does while a broker is registered that is not Kalda's: one that the test registers.

`tests/compat/test_join_kafka.py` does the same with Apache Kafka.
"""

import json
from pathlib import Path
from typing import Literal

import pytest
from kazoo.client import KazooClient

from kalda import Admin, ClientError, Consumer, FeatureUpdate, NewTopic, Producer
from kalda.cluster import paths, schema
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.testing import ProcessCluster
from tests.integration.cluster.helpers import wait_until

OTHER = BrokerInfo(9, (ListenerEndpoint("PLAINTEXT", "127.0.0.1", 1),))
COUNT = 20


def produce(bootstrap: str, first: int) -> None:
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for future in [producer.send("t", value=b"%d" % each) for each in range(first, first + COUNT)]:
            future.result(30)


def consume(consumer: Consumer) -> list[int]:
    found: list[int] = []
    while len(found) < COUNT:
        found += [int(each.value or b"") for each in consumer.poll(timeout_s=1)]
    return found


def consumer_of(bootstrap: str, protocol: Literal["classic", "consumer"]) -> Consumer:
    return Consumer(
        "t",
        bootstrap_servers=bootstrap,
        group_id="g",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def test_elections_features_and_groups_beside_another_broker(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, brokers=2) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        zookeeper, other = KazooClient(cluster.zookeeper), KazooClient(cluster.zookeeper)
        zookeeper.start()
        other.start()

        def levels() -> dict[str, int]:
            found: dict[str, int] = json.loads(zookeeper.get(paths.FEATURE)[0])["kalda"]
            return found

        admin.create_topics([NewTopic("t", partitions=1, replication_factor=2)])
        produce(cluster.bootstrap, 0)
        with consumer_of(cluster.bootstrap, "consumer") as member:
            assert list(range(COUNT)) == consume(member)
            member.commit()
            assert {"group.version": 1, "share.version": 1, "transaction.version": 2} == levels()

            other.create(paths.broker(OTHER.id), schema.encode_broker(OTHER), ephemeral=True)
            # The controller resigns, and none of Kalda's is elected before the other one.
            wait_until(lambda: zookeeper.exists(paths.CONTROLLER) is None)
            other.create(paths.CONTROLLER, schema.encode_controller(OTHER.id, 0), ephemeral=True)
            wait_until(lambda: not levels())
            with pytest.raises(ClientError, match="set it to classic"):
                consume(member)

        produce(cluster.bootstrap, COUNT)
        with consumer_of(cluster.bootstrap, "classic") as classic:
            assert list(range(COUNT, 2 * COUNT)) == consume(classic)
            classic.commit()

        other.stop()
        other.close()
        wait_until(lambda: zookeeper.exists(paths.CONTROLLER) is not None)
        assert {} == levels(), "they come back on request only"
        wait_until(lambda: admin.describe_cluster().controller is not None)
        admin.update_features({"group.version": FeatureUpdate(1)})
        produce(cluster.bootstrap, 2 * COUNT)
        with consumer_of(cluster.bootstrap, "consumer") as member:
            assert list(range(2 * COUNT, 3 * COUNT)) == consume(member)
        zookeeper.stop()
        zookeeper.close()
