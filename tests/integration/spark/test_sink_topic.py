"""A sink whose topic does not exist fails when it is planned, in seconds, and not in each of its tasks."""

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kalda import Admin, NewTopic
from kalda.spark.datasource import KaldaDataSource
from kalda.spark.sink import topic_check
from kalda.spark.source.option_values import OptionError
from kalda.spark.worker import STREAM_COMMIT_MODULE
from kalda.testing import Cluster
from tests.shared_broker import shared_broker

pytestmark = pytest.mark.usefixtures("closed_readers")

VALUE = StructType([StructField("value", StringType())])
TOPIC_AND_VALUE = StructType([StructField("topic", StringType()), *VALUE])
UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that creates no topics by itself."""
    with shared_broker(
        tmp_path_factory.mktemp("no-topics"), {"auto.create.topics.enable": "false"}
    ) as address:
        yield address


def source(bootstrap: str, **options: str) -> KaldaDataSource:
    """A data source whose producers wait half a second for a topic."""
    return KaldaDataSource({"kafka.bootstrap.servers": bootstrap, "kafka.max.block.ms": "500", **options})


def test_a_missing_topic_is_refused(bootstrap: str) -> None:
    refusal = "`topic`=nowhere does not exist, and the brokers did not create it within 500 ms"

    with pytest.raises(OptionError, match=refusal):
        source(bootstrap, topic="nowhere").writer(VALUE, overwrite=False)
    with pytest.raises(OptionError, match=refusal):
        source(bootstrap, topic="nowhere").streamWriter(VALUE, overwrite=False)


def test_a_topic_that_exists_is_accepted(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("there")])

    patient = {"kafka.max.block.ms": "60000"}
    source(bootstrap, topic="there", **patient).writer(VALUE, overwrite=False)
    source(bootstrap, topic="there", **patient).streamWriter(VALUE, overwrite=False)


def test_a_topic_that_brokers_create_is_accepted() -> None:
    """As a task would have created it."""
    with Cluster(brokers=1) as cluster:
        source(cluster.bootstrap, topic="made", **{"kafka.max.block.ms": "60000"}).writer(VALUE, False)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert "made" in admin.list_topics()


def test_topics_of_a_column_are_not_looked_up() -> None:
    """Only the rows name them."""
    source(UNREACHABLE).writer(TOPIC_AND_VALUE, overwrite=False)


def test_the_end_of_a_batch_does_not_depend_on_the_topic(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes a writer for the commit and for the abort too, which end transactions."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "pyspark.daemon", STREAM_COMMIT_MODULE])

    source(bootstrap, topic="nowhere").streamWriter(VALUE, overwrite=False)


def test_brokers_that_do_not_answer_are_left_to_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be back when the tasks send, which wait longer."""
    monkeypatch.setattr(topic_check, "LOOKUP_TIMEOUT_MS", 200)

    source(UNREACHABLE, topic="there").writer(VALUE, overwrite=False)
