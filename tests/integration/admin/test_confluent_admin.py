"""librdkafka's admin client beyond the basics: sources, synonyms, brokers' settings, many topics at once."""

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin as admin_api
import pytest

TIMEOUT_SECONDS = 60
TopicName = Callable[[str], str]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    with admin_api.AdminClient({"bootstrap.servers": bootstrap}) as client:
        yield client


@pytest.fixture
def broker(admin: Any) -> str:
    [broker_id] = admin.list_topics(timeout=TIMEOUT_SECONDS).brokers
    return str(broker_id)


def create(admin: Any, *names: str, partitions: int = 1) -> None:
    topics = [admin_api.NewTopic(name, partitions, 1) for name in names]
    for future in admin.create_topics(topics, operation_timeout=TIMEOUT_SECONDS).values():
        future.result(TIMEOUT_SECONDS)


def configs(admin: Any, kind: Any, name: str) -> dict[str, Any]:
    [future] = admin.describe_configs([admin_api.ConfigResource(kind, name)]).values()
    found: dict[str, Any] = future.result(TIMEOUT_SECONDS)
    return found


def change(admin: Any, kind: Any, name: str, setting: str, operation: Any, value: str | None) -> None:
    entry = admin_api.ConfigEntry(setting, value, incremental_operation=operation)
    resource = admin_api.ConfigResource(kind, name, incremental_configs=[entry])
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_SECONDS)


def error_code(future: Any) -> int:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(TIMEOUT_SECONDS)
    return int(caught.value.args[0].code())


def test_topics_are_described_with_ids_and_operations(admin: Any, topic_name: TopicName) -> None:
    name, missing = topic_name("described"), topic_name("missing")
    create(admin, name, partitions=3)

    futures = admin.describe_topics(
        confluent_kafka.TopicCollection([name, missing]), include_authorized_operations=True
    )

    described = futures[name].result(TIMEOUT_SECONDS)
    assert 3 == len(described.partitions)
    assert not described.is_internal
    assert 8 == len(described.authorized_operations)
    assert str(described.topic_id)
    assert all([node.id for node in p.isr] == [node.id for node in p.replicas] for p in described.partitions)
    assert confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART == error_code(futures[missing])


def test_a_hundred_topics_come_and_go_in_one_request(admin: Any, topic_name: TopicName) -> None:
    names = [topic_name(f"many{number}") for number in range(100)]

    create(admin, *names, partitions=2)
    known = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    assert all(2 == len(known[name].partitions) for name in names)
    for future in admin.delete_topics(names, operation_timeout=TIMEOUT_SECONDS).values():
        future.result(TIMEOUT_SECONDS)
    assert not set(names) & admin.list_topics(timeout=TIMEOUT_SECONDS).topics.keys()


def test_brokers_settings_are_all_described(admin: Any, broker: str) -> None:
    described = configs(admin, admin_api.ResourceType.BROKER, broker)

    assert len(described) > 300
    port = described["socket.request.max.bytes"]
    assert ("104857600", True, admin_api.ConfigSource.DEFAULT_CONFIG.value) == (
        port.value,
        port.is_read_only,
        port.source,
    )
    assert admin_api.ConfigSource.STATIC_BROKER_CONFIG.value == described["listeners"].source
    assert described["ssl.keystore.password"].is_sensitive


def test_a_brokers_setting_reaches_its_topics_and_goes_again(
    admin: Any, broker: str, topic_name: TopicName
) -> None:
    name = topic_name("inherits")
    create(admin, name)
    brokers, topics = admin_api.ResourceType.BROKER, admin_api.ResourceType.TOPIC
    operations, sources = admin_api.AlterConfigOpType, admin_api.ConfigSource
    setting = "log.cleaner.delete.retention.ms"

    def seen() -> tuple[str, str]:
        entry = configs(admin, topics, name)["delete.retention.ms"]
        return entry.value, sources(entry.source).name

    assert ("86400000", "DEFAULT_CONFIG") == seen()
    change(admin, brokers, broker, setting, operations.SET, "2000")
    assert ("2000", "DYNAMIC_BROKER_CONFIG") == seen()
    change(admin, brokers, broker, setting, operations.DELETE, None)
    assert ("86400000", "DEFAULT_CONFIG") == seen()


def test_settings_that_cannot_change_are_refused(admin: Any, broker: str) -> None:
    codes = confluent_kafka.KafkaError
    brokers = admin_api.ResourceType.BROKER
    for setting, value in (("num.partitions", "3"), ("log.segment.bytes", "1")):
        entry = admin_api.ConfigEntry(setting, value, incremental_operation=admin_api.AlterConfigOpType.SET)
        resource = admin_api.ConfigResource(brokers, broker, incremental_configs=[entry])
        [future] = admin.incremental_alter_configs([resource]).values()
        assert codes.INVALID_REQUEST == error_code(future)


def test_the_older_call_replaces_all_settings(admin: Any, topic_name: TopicName) -> None:
    name = topic_name("replaced")
    topics = admin_api.ResourceType.TOPIC
    create(admin, name)
    change(admin, topics, name, "retention.ms", admin_api.AlterConfigOpType.SET, "1000")

    resource = admin_api.ConfigResource(topics, name, set_config={"segment.bytes": "2000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        [future] = admin.alter_configs([resource]).values()
    future.result(TIMEOUT_SECONDS)

    described = configs(admin, topics, name)
    assert ("2000", "604800000") == (described["segment.bytes"].value, described["retention.ms"].value)


def test_a_consumer_may_forbid_that_its_question_creates_the_topic(
    admin: Any, bootstrap: str, topic_name: TopicName
) -> None:
    name = topic_name("not-created")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    assert consumer.list_topics(name, timeout=TIMEOUT_SECONDS).topics[name].error is not None
    consumer.close()

    assert name not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_a_producer_creates_the_topic_it_asks_for(admin: Any, bootstrap: str, topic_name: TopicName) -> None:
    name = topic_name("created")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})

    producer.produce(name, b"first")
    assert 0 == producer.flush(TIMEOUT_SECONDS)

    assert 1 == len(admin.list_topics(name, timeout=TIMEOUT_SECONDS).topics[name].partitions)


def test_changes_reach_logs_that_are_open(admin: Any, bootstrap: str, topic_name: TopicName) -> None:
    """A smaller limit counts for the very next message."""
    name = topic_name("limit")
    create(admin, name)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    errors: list[Any] = []

    def send(size: int) -> Any:
        producer.produce(name, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        producer.flush(TIMEOUT_SECONDS)
        return errors[-1]

    assert send(5000) is None
    change(
        admin,
        admin_api.ResourceType.TOPIC,
        name,
        "max.message.bytes",
        admin_api.AlterConfigOpType.SET,
        "1000",
    )
    refused = send(5000)
    assert confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE == refused.code()
    change(
        admin,
        admin_api.ResourceType.TOPIC,
        name,
        "max.message.bytes",
        admin_api.AlterConfigOpType.DELETE,
        None,
    )
    assert send(5000) is None
