"""What models of Apache Kafka's brokers write."""

import json

import pytest

from kalda.cluster import paths
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint, decode_broker, encode_broker
from kalda.common.types import TopicPartition
from kalda.simulation.foreign import written_by


def test_a_registration_has_neither_mark_nor_features() -> None:
    info = BrokerInfo(
        1, (ListenerEndpoint("PLAINTEXT", "host", 9092),), features=(("group.version", 0, 1),), kalda="1.0"
    )
    assert info.is_kalda

    found = decode_broker(1, written_by("3.9", paths.broker(1), encode_broker(info)))

    assert not found.is_kalda
    assert info.endpoints == found.endpoints


@pytest.mark.parametrize(("release", "has_id"), [("2.7", False), ("3.9", True)])
def test_topic_ids_are_dropped_before_2_8(release: str, has_id: bool) -> None:
    data = b'{"partitions":{"0":[1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","version":3}'

    found = json.loads(written_by(release, paths.topic("t"), data))

    assert has_id == ("topic_id" in found)
    assert {"0": [1]} == found["partitions"]


def test_other_znodes_are_left_alone() -> None:
    assert b"x" == written_by("2.7", paths.partition_state(TopicPartition("t", 0)), b"x")
