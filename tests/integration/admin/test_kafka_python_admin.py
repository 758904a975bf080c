"""kafka-python's admin client: every admin call that this broker serves."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.admin as admin_api
import kafka.errors
import pytest

TopicName = Callable[[str], str]
TOPIC = admin_api.ConfigResourceType.TOPIC
BROKER = admin_api.ConfigResourceType.BROKER
LOGGER = admin_api.ConfigResourceType.BROKER_LOGGER


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def new(name: str, partitions: int = 1, **fields: Any) -> Any:
    return admin_api.NewTopic(name, partitions, 1, **fields)


def configs(
    admin: Any, name: str, kind: Any = TOPIC, config_filter: str = "all"
) -> dict[str, dict[str, Any]]:
    resource = admin_api.ConfigResource(kind, name)
    answer = admin.describe_configs([resource], include_synonyms=True, config_filter=config_filter)
    [by_name] = answer.values()
    found: dict[str, dict[str, Any]] = by_name[name]
    return found


def test_a_topic_is_created_described_grown_and_deleted(admin: Any, topic_name: TopicName) -> None:
    name = topic_name("kp")
    created = admin.create_topics([new(name, 2, topic_configs={"retention.ms": "5"})])["topics"][0]
    assert (2, 1, "5") == (
        created["num_partitions"],
        created["replication_factor"],
        created["configs"]["retention.ms"]["value"],
    )

    [described] = admin.describe_topics([name])
    assert created["topic_id"] == described["topic_id"]
    assert [0, 1] == [partition["partition_index"] for partition in described["partitions"]]
    assert all(p["error_code"] == 0 and p["leader_id"] >= 0 for p in described["partitions"])
    assert "ALTER_CONFIGS" in described["authorized_operations"]
    admin.create_partitions({name: admin_api.NewPartitions(4)})
    [described] = admin.describe_topics([name])
    assert 4 == len(described["partitions"])
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_a_topic_can_be_created_again_as_soon_as_its_deletion_is_answered(
    admin: Any, topic_name: TopicName
) -> None:
    name = topic_name("again")
    ids = set()

    for _ in range(10):
        [created] = admin.create_topics([new(name, 3)])["topics"]
        ids.add(created["topic_id"])
        admin.delete_topics([name])

    assert 10 == len(ids)


def test_replicas_by_hand_and_counts_by_default(admin: Any, topic_name: TopicName) -> None:
    by_hand, by_default = topic_name("hand"), topic_name("default")
    broker = admin.describe_cluster()["brokers"][0]["broker_id"]

    assignments = {0: [broker], 1: [broker], 2: [broker]}
    admin.create_topics([admin_api.NewTopic(by_hand, replica_assignments=assignments)])
    admin.create_topics([admin_api.NewTopic(by_default)])

    assert 3 == len(admin.describe_topics([by_hand])[0]["partitions"])
    assert 1 == len(admin.describe_topics([by_default])[0]["partitions"])


def test_checking_alone_creates_nothing(admin: Any, topic_name: TopicName) -> None:
    name = topic_name("only-checked")

    [checked] = admin.create_topics([new(name, 3)], validate_only=True)["topics"]

    assert 3 == checked["num_partitions"]
    assert name not in admin.list_topics()
    existing = topic_name("existing")
    admin.create_topics([new(existing)])
    admin.create_partitions({existing: admin_api.NewPartitions(5)}, validate_only=True)
    assert 1 == len(admin.describe_topics([existing])[0]["partitions"])


def test_mistakes_have_their_errors(admin: Any, topic_name: TopicName) -> None:
    name = topic_name("taken")
    admin.create_topics([new(name, 2)])

    for topic, error in (
        (new(name), kafka.errors.TopicAlreadyExistsError),
        (new("bad name"), kafka.errors.InvalidTopicError),
        (new(name.replace("-", "_")), None),
        (new(name.replace("-", ".")), kafka.errors.InvalidTopicError),
        (admin_api.NewTopic(topic_name("many"), 1, 7), kafka.errors.InvalidReplicationFactorError),
        (
            new(topic_name("config"), topic_configs={"retention.ms": "x"}),
            kafka.errors.InvalidConfigurationError,
        ),
    ):
        if error is None:
            admin.create_topics([topic])
            continue
        with pytest.raises(error):
            admin.create_topics([topic])
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_partitions({name: admin_api.NewPartitions(1)})
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([topic_name("nowhere")])


def test_pages_of_partitions(admin: Any, topic_name: TopicName) -> None:
    """What Java's admin client asks first; each page goes on where the last one ended."""
    names = sorted(topic_name(f"page{number}") for number in range(3))
    admin.create_topics([new(name, 3) for name in names])
    seen: list[tuple[str, int]] = []
    cursor = None

    while True:
        page = admin.describe_topic_partitions(names, response_partition_limit=2, cursor=cursor)
        seen += [
            (topic["name"], p["partition_index"]) for topic in page["topics"] for p in topic["partitions"]
        ]
        if page["next_cursor"] is None:
            break
        following = page["next_cursor"]
        cursor = {"topic_name": following["topic_name"], "partition_index": following["partition_index"]}

    assert [(name, number) for name in names for number in range(3)] == seen


def test_topic_settings_change_and_come_back(admin: Any, topic_name: TopicName) -> None:
    name = topic_name("settings")
    admin.create_topics([new(name, topic_configs={"retention.ms": "5"})])
    assert ["retention.ms"] == list(configs(admin, name, config_filter="modified"))

    admin.alter_configs([admin_api.ConfigResource(TOPIC, name, configs={"segment.bytes": "1000"})])
    entry = configs(admin, name)["segment.bytes"]
    assert ("1000", "DYNAMIC_TOPIC_CONFIG", "INT") == (
        entry["value"],
        entry["config_source"],
        entry["config_type"],
    )
    assert [
        {"name": "segment.bytes", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"},
        {"name": "log.segment.bytes", "value": "1073741824", "source": "DEFAULT_CONFIG"},
    ] == entry["synonyms"]
    admin.reset_configs([admin_api.ConfigResource(TOPIC, name, configs=["segment.bytes"])])
    assert ["retention.ms"] == list(configs(admin, name, config_filter="modified"))
    refused = admin.alter_configs([admin_api.ConfigResource(TOPIC, name, configs={"segment.bytes": "1"})])
    assert "InvalidConfigurationError" in str(refused)


def test_broker_settings_change_while_it_runs(admin: Any) -> None:
    broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    described = configs(admin, broker, BROKER)
    assert len(described) > 300
    assert (True, "DEFAULT_CONFIG") == (
        described["num.partitions"]["read_only"],
        described["num.partitions"]["config_source"],
    )

    resource = admin_api.ConfigResource(BROKER, broker, configs={"background.threads": "7"})
    admin.alter_configs([resource])
    entry = configs(admin, broker, BROKER)["background.threads"]
    assert ("7", "DYNAMIC_BROKER_CONFIG") == (entry["value"], entry["config_source"])
    admin.reset_configs([admin_api.ConfigResource(BROKER, broker, configs=["background.threads"])])
    assert "10" == configs(admin, broker, BROKER)["background.threads"]["value"]


def test_levels_of_loggers_change_while_it_runs(admin: Any) -> None:
    broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    logger = "kalda.broker.topics.topic_admin"
    before = configs(admin, broker, LOGGER)[logger]["value"]

    for level in ("DEBUG", before):
        admin.alter_configs([admin_api.ConfigResource(LOGGER, broker, configs={logger: level})])
        assert level == configs(admin, broker, LOGGER)[logger]["value"]


def test_what_is_not_served_is_not_advertised(admin: Any) -> None:
    """Produce begins at 0, or librdkafka before 2.11.1 stops compressing."""
    served = {key.name: versions for key, versions in admin.api_versions().items()}

    assert (0, 13) == served["Produce"]
    assert (0, 13) == served["Metadata"]
    assert (0, 5) == served["ApiVersions"]
    assert not {"DescribeQuorum"} & served.keys()
