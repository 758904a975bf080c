"""Topics, their ids and their settings are the same after a restart, and after a crash."""

from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin as admin_api
import pytest

from kalda.testing import KaldaProcess

TIMEOUT_SECONDS = 60


def describe(bootstrap: str, names: list[str]) -> dict[str, tuple[str, int, str, str]]:
    """Name to id, count of partitions, and two settings."""
    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.describe_topics(confluent_kafka.TopicCollection(names))
    found = {}
    for name in names:
        topic: Any = topics[name].result(TIMEOUT_SECONDS)
        resource = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, name)
        settings = admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
        found[name] = (
            str(topic.topic_id),
            len(topic.partitions),
            settings["retention.ms"].value,
            settings["segment.bytes"].value,
        )
    return found


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_topics_and_settings_outlive_the_process(tmp_path: Path, end: str) -> None:
    with KaldaProcess(tmp_path / "data") as kalda:
        admin = admin_api.AdminClient({"bootstrap.servers": kalda.bootstrap})
        topics = [
            admin_api.NewTopic("plain", 2, 1),
            admin_api.NewTopic("own", 3, 1, config={"retention.ms": "5000"}),
            admin_api.NewTopic("gone", 1, 1),
        ]
        for future in admin.create_topics(topics).values():
            future.result(TIMEOUT_SECONDS)
        entry = admin_api.ConfigEntry(
            "log.segment.bytes", "1048576", incremental_operation=admin_api.AlterConfigOpType.SET
        )
        resource = admin_api.ConfigResource(admin_api.ResourceType.BROKER, "0", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)
        grown = admin.create_partitions([admin_api.NewPartitions("plain", 4)])
        grown["plain"].result(TIMEOUT_SECONDS)
        admin.delete_topics(["gone"])["gone"].result(TIMEOUT_SECONDS)
        before = describe(kalda.bootstrap, ["plain", "own"])

        getattr(kalda, end)()
        kalda.start()

        assert before == describe(kalda.bootstrap, ["plain", "own"])
        assert [("604800000", "1048576"), ("5000", "1048576")] == [row[2:] for row in before.values()]
        assert [4, 3] == [row[1] for row in before.values()]
        admin = admin_api.AdminClient({"bootstrap.servers": kalda.bootstrap})
        listed = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        assert ["own", "plain"] == sorted(name for name in listed if not name.startswith("__"))
