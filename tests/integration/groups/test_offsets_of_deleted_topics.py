"""Offsets go with their topic, so that a new topic of the same name is read from its beginning."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

MakeTopic = Callable[..., str]

WAIT_SECONDS = 60.0


def test_a_deleted_topic_leaves_no_offsets_behind(three_brokers: str, make_topic: MakeTopic) -> None:
    topic, other = make_topic(three_brokers, values=0), make_topic(three_brokers, values=0)
    reader = Consumer(
        {"bootstrap.servers": three_brokers, "group.id": f"group-{topic}", "enable.auto.commit": False}
    )
    offsets = [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6), TopicPartition(other, 0, 7)]
    reader.commit(offsets=offsets, asynchronous=False)
    admin = AdminClient({"bootstrap.servers": three_brokers})
    admin.delete_topics([topic])[topic].result(30)
    wanted = [TopicPartition(each.topic, each.partition) for each in offsets]
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = [each.offset for each in reader.committed(wanted, timeout=60)]
        if found[0] < 0 and found[1] < 0:
            break
        assert time.monotonic() < deadline, f"the offsets are still {found}"
        time.sleep(0.05)
    assert 7 == found[2]
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(30)
    assert reader.committed(wanted, timeout=60)[0].offset < 0
    reader.close()
