"""Where a broker's logs are, asked with a client that operators' scripts use."""

import contextlib
from collections.abc import Callable

import kafka
import kafka.admin


def test_kafka_python_describes_log_directories(bootstrap: str, topic_name: Callable[[str], str]) -> None:
    name = topic_name("dirs")
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([kafka.admin.NewTopic(name, 2, 1)])
        answer = admin.describe_log_dirs()
    [broker] = answer
    [directory] = broker["log_dirs"]
    sizes = {
        each["partition_index"]: each["partition_size"]
        for topic in directory["topics"]
        if topic["name"] == name
        for each in topic["partitions"]
    }
    assert (0, {0: 0, 1: 0}) == (directory["error_code"], sizes)
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
