"""Our admin client with old releases of Apache Kafka, which run on Kalda's coordination server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda import Admin, AlterConfigOp, ConfigResource, NewTopic, OffsetSpec, TopicPartition
from kalda.clients.errors import UnsupportedApiError
from tests.compat.old_kafka import old_kafka


@pytest.fixture(params=["2.1.1", "2.8.2"])
def admin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Admin]:
    try:
        with (
            old_kafka(request.param, tmp_path) as kafka,
            Admin(bootstrap_servers=kafka.bootstrap, default_api_timeout_ms=20_000) as client,
        ):
            yield client
    except NotAvailableError as error:
        pytest.skip(str(error))


def test_topics_settings_groups_and_offsets_are_administered(admin: Admin) -> None:
    """Requests in their old versions, and what replaces those that did not exist."""
    admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": 5_000_000})])
    first, topic = TopicPartition("t", 0), ConfigResource.topic("t")

    cluster = admin.describe_cluster()
    assert [0] == [node.id for node in cluster.nodes]
    assert {"t"} == admin.list_topics().keys()
    admin.create_partitions({"t": 3})
    assert 3 == len(admin.describe_topics(["t"])["t"].partitions)

    admin.incremental_alter_configs({topic: [AlterConfigOp.set("segment.ms", 100_000)]})
    own = {
        name: entry.value
        for name, entry in admin.describe_configs([topic])[topic].items()
        if not entry.is_default
    }
    assert {"retention.ms": "5000000", "segment.ms": "100000"} == own

    admin.alter_consumer_group_offsets({"g": {first: 0}, "h": {first: 0}})
    offsets = admin.list_consumer_group_offsets(["g", "h", "missing"], outcomes=True)
    assert [{first}, {first}, set()] == [set(each) for each in offsets.values()]
    assert ["g", "h"] == [each.group_id for each in admin.list_consumer_groups().all()]
    assert 0 == admin.describe_consumer_groups(["g"])["g"].coordinator_id
    admin.delete_consumer_groups(["g", "h"])

    assert 0 == admin.list_offsets({first: OffsetSpec.latest()})[first].offset
    assert 0 == admin.delete_records({first: -1})[first].low_watermark
    assert [0] == list(admin.describe_log_dirs(outcomes=True).results)
    with pytest.raises(UnsupportedApiError, match=r"brokers before 3\.0"):
        admin.list_offsets({first: OffsetSpec.max_timestamp()})[first]
    with pytest.raises(UnsupportedApiError, match="offers no version of ListTransactions"):
        admin.list_transactions().all()
    admin.delete_topics(["t"])
