"""Spark reads and writes over TLS and SASL, by the options of Kafka's connector.

`tests/compat` has each listener with each mechanism."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kalda import NewTopic
from kalda.common.types import TopicPartition
from tests.identity_provider import identity_provider
from tests.secured_broker import TOKEN, SecuredBroker, Way, secured_broker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COUNT = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with identity_provider() as provider, secured_broker(tmp_path_factory.mktemp("spark"), provider) as made:
        yield made


def options(broker: SecuredBroker, way: Way) -> Mapping[str, str]:
    return {f"kafka.{name}": value for name, value in broker.properties(way).items()}


def write_and_read(broker: SecuredBroker, way: Way, spark: "SparkSession", directory: "Path") -> None:
    """Write and read a batch, then read a stream that commits to a group."""
    topic = f"{way.user}.spark-{uuid4().hex[:10]}"
    with broker.admin() as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    login = options(broker, way)
    rows = spark.range(COUNT).selectExpr("cast(id as string) as value").coalesce(1)
    rows.write.format("kalda").options(**login, topic=topic).mode("append").save()
    source = spark.read.format("kalda").options(**login, subscribe=topic)
    found = [row.value.decode() for row in source.load().select("value").collect()]
    assert [str(number) for number in range(COUNT)] == found
    query = (
        spark.readStream.format("kalda")
        .options(**login, subscribe=topic, startingOffsets="earliest", **{"kafka.group.id": topic})
        .load()
        .writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .format("noop")
        .start()
    )
    assert query.awaitTermination(120)
    with broker.admin() as admin:
        offset = admin.list_consumer_group_offsets([topic])[topic][TopicPartition(topic, 0)]
    assert offset is not None
    assert COUNT == offset.offset


@pytest.mark.parametrize(
    "way", [Way("MTLS"), Way("SASL_SSL", "OAUTHBEARER"), Way("SASL_PLAINTEXT", TOKEN)], ids=str
)
def test_spark_is_the_user_that_it_logs_in_as(
    broker: SecuredBroker, way: Way, spark: "SparkSession", tmp_path: "Path"
) -> None:
    """The user may use only topics and groups that begin with the user's name."""
    write_and_read(broker, way, spark, tmp_path)
