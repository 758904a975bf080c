"""A copy of a directory is a cluster, as the page on backups says."""

import shutil
from pathlib import Path

from kalda import Admin, Consumer, Producer, TopicPartition
from kalda.testing import KaldaProcess

RECORDS = 100
READ = 40


def fill(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            producer.send("orders", b"%d" % number)
    with Consumer(
        "orders", bootstrap_servers=bootstrap, group_id="billing", auto_offset_reset="earliest",
        enable_auto_commit=False, max_poll_records=READ,
    ) as consumer:  # fmt: skip
        read = 0
        while read < READ:
            read += len(consumer.poll(1.0))
        consumer.commit({TopicPartition("orders", 0): READ})


def values(bootstrap: str) -> list[bytes | None]:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partition = TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes | None] = []
        while consumer.position(partition) < end:
            found += [record.value for record in consumer.poll(1.0)]
        return found


def is_whole(copy: Path) -> None:
    with KaldaProcess(copy) as restored:
        assert [b"%d" % number for number in range(RECORDS)] == values(restored.bootstrap)
        with Admin(bootstrap_servers=restored.bootstrap) as admin:
            offset = admin.list_consumer_group_offsets(["billing"])["billing"][TopicPartition("orders", 0)]
        assert offset is not None
        assert READ == offset.offset


def test_a_copy_of_a_stopped_cluster_is_whole(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data") as broker:
        fill(broker.bootstrap)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    is_whole(tmp_path / "copy")


def test_a_snapshot_of_a_running_cluster_has_what_was_flushed(tmp_path: Path) -> None:
    """The files of one moment: the process is stopped by a signal while they are copied, as by a snapshot."""
    with KaldaProcess(tmp_path / "data", settings={"log.flush.interval.messages": "1"}) as broker:
        fill(broker.bootstrap)
        broker.pause()
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        broker.resume()
        assert RECORDS == len(values(broker.bootstrap))
    is_whole(tmp_path / "copy")
