"""Tasks of about equal size: `maxBytesPerPartition` next to a real broker; no Spark is started."""

from collections import Counter

from kalda import Admin, Producer
from kalda.clients.admin.topics import NewTopic
from kalda.spark.source.options import parse_batch_options
from kalda.spark.source.reader import KaldaBatchReader, RangePartition
from kalda.spark.source.schema import source_schema
from kalda.spark.worker import close_readers
from kalda.testing import Cluster

COUNT = 400


def test_a_partition_of_large_records_gets_more_tasks() -> None:
    """By their number of records, both partitions would get the same."""
    with Cluster(brokers=1) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("skewed", partitions=2)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for partition, size in enumerate((100, 2_000)):
                for _ in range(COUNT):
                    producer.send("skewed", bytes(size), partition=partition)
            producer.flush()
        options = parse_batch_options(
            {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "subscribe": "skewed",
                "maxBytesPerPartition": "100000",
                "endingOffsets": '{"skewed":{"0":400,"1":200}}',
            }
        )

        tasks = KaldaBatchReader(options, source_schema(include_headers=False)).partitions()
        close_readers()

    ranges = [each.ranges for each in tasks if isinstance(each, RangePartition)]
    assert all(len(each) == 1 for each in ranges)
    # 400 records of about 110 B, and 200 of about 2,010 B.
    assert {0: 1, 1: 5} == Counter(each.topic_partition.partition for (each,) in ranges)
