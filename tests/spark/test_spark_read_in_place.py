"""Spark's tasks read in place: the same rows, by either way."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_rows_are_the_same_by_either_way(spark: "SparkSession", options: Any, topics: Any) -> None:
    """`files` fails where nothing can be read in place, so this shows that workers do."""
    topic = topics.create("in-place", partitions=2, config={"segment.bytes": "20000"})
    for number, codec in enumerate(("none", "zstd", "lz4")):
        values = [b"%d-%d" % (number, each) for each in range(1000)]
        topics.fill(topic, values, config={"compression.type": codec, "batch.num.messages": "50"})

    def rows(mode: str) -> list[Any]:
        given = options(subscribe=topic, readMode=mode, minPartitions="4")
        frame = spark.read.format("kalda").options(**given).load()
        return frame.orderBy("partition", "offset").collect()

    in_place = rows("files")
    assert 3000 == len(in_place)
    assert in_place == rows("network")


def test_a_wrong_mode_names_the_right_ones(spark: "SparkSession", options: Any, topics: Any) -> None:
    """A mode that is ignored in silence would be taken for one that works."""
    topic = topics.create("in-place-mode")
    given = options(subscribe=topic, readMode="disk")

    with pytest.raises(Exception, match="`readMode`='disk' is none of auto, network, files"):
        spark.read.format("kalda").options(**given).load().collect()
