"""`kalda pipeline preview` against a real broker."""

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from kalda.common.types import TopicPartition
from kalda.pipelines.engine.preview import preview_pipeline
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """
name: shop
storage: {storage}
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - name: orders
    from: {{topic: {topic}, value: {{format: json, schema: "id bigint"}}, keep: [partition, offset]}}
    to: {{table: lake.orders, format: parquet}}
"""


def test_the_newest_committed_records_of_all_partitions_are_shown(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Each transaction has one record, so that every second offset is a marker; one was aborted."""
    topic = topic_name("preview")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1)])[topic].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(8):
        producer.begin_transaction()
        value = b"bad" if number == 7 else b'{"id": %d}' % number
        producer.produce(topic, value, partition=number % 2, timestamp=1_700_000_000_000 + number)
        if number == 6:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    text = FILE.format(storage=tmp_path / "state", bootstrap=bootstrap, topic=topic)
    file = parse_pipeline_file(text, str(tmp_path / "p.yml"), directory=tmp_path, variables={})

    found = preview_pipeline(file.pipelines[0], file, 3)

    assert [(4, 0), (5, 1)] == [(each["id"], each["partition"]) for each in found.rows]
    assert [(TopicPartition(topic, 1), b"bad")] == [(each.topic_partition, each.value) for each in found.dead]
    assert not (tmp_path / "state").exists()
