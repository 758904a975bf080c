"""`kalda configs` against a broker."""

from pathlib import Path

from tests.integration.tools.commands import Commands


def test_settings_of_a_topic_are_altered_and_described(kalda: Commands, tmp_path: Path) -> None:
    kalda("topics", "create", "flights")
    file = tmp_path / "topic.properties"
    file.write_text("segment.bytes=1048576\n")
    assert (
        "Altered settings of topic flights.\n"
        == kalda(
            "configs",
            "alter",
            "--topic",
            "flights",
            "--add-config",
            "retention.ms=5000,cleanup.policy=[compact,delete]",
            "--add-config-file",
            str(file),
        ).stdout
    )

    done = kalda("configs", "describe", "--entity-type", "topics", "--entity-name", "flights")
    source = "DYNAMIC_TOPIC_CONFIG"
    assert [
        ["topics", "flights", "cleanup.policy", source, "-", "compact,delete"],
        ["topics", "flights", "retention.ms", source, "-", "5000"],
        ["topics", "flights", "segment.bytes", source, "-", "1048576"],
    ] == done.rows

    kalda("configs", "alter", "--topic", "flights", "--delete-config", "segment.bytes,retention.ms")
    kalda("configs", "alter", "--topic", "flights", "--subtract", "cleanup.policy=delete")
    (entity,) = kalda.json("configs", "describe", "--topic", "flights")["entities"]
    assert ("topics", "flights") == (entity["type"], entity["name"])
    (entry,) = entity["configs"]
    assert ("cleanup.policy", "compact", source, False) == (
        entry["name"],
        entry["value"],
        entry["source"],
        entry["is_sensitive"],
    )
    assert ["DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"] == [each["source"] for each in entry["synonyms"]]


def test_all_settings_and_single_ones_are_shown(kalda: Commands) -> None:
    kalda("topics", "create", "plain")

    assert [] == kalda("configs", "describe", "--topic", "plain").rows
    assert len(kalda("configs", "describe", "--topic", "plain", "--all").rows) > 20
    assert [["topics", "plain", "retention.ms", "DEFAULT_CONFIG", "-", "604800000"]] == kalda(
        "configs", "describe", "--topic", "plain", "--name", "retention.ms"
    ).rows


def test_settings_of_one_broker_and_of_all_are_separate(kalda: Commands) -> None:
    kalda("configs", "alter", "--broker-defaults", "--add-config", "log.retention.ms=70000")
    kalda("configs", "alter", "--broker", 0, "--add-config", "log.retention.ms=80000")
    names = ["type", "entity", "name", "source", "flags", "value"]

    def described(*entity: str) -> list[dict[str, str]]:
        return [dict(zip(names, row, strict=True)) for row in kalda("configs", "describe", *entity).rows]

    assert [("<default>", "70000")] == [
        (row["entity"], row["value"]) for row in described("--entity-type", "brokers", "--entity-default")
    ]
    assert [("0", "80000")] == [(row["entity"], row["value"]) for row in described("--broker", "0")]
    assert [("0", "80000"), ("<default>", "70000")] == [
        (row["entity"], row["value"]) for row in described("--entity-type", "brokers")
    ]
    kalda("configs", "alter", "--broker", 0, "--delete-config", "log.retention.ms")
    kalda("configs", "alter", "--broker-defaults", "--delete-config", "log.retention.ms")


def test_a_dry_run_checks_and_changes_nothing(kalda: Commands) -> None:
    kalda("topics", "create", "kept")
    change = ("configs", "alter", "--topic", "kept", "--dry-run", "--add-config")

    assert "Would alter settings of topic kept.\n" == kalda(*change, "retention.ms=1").stdout
    assert [] == kalda("configs", "describe", "--topic", "kept").rows
    done = kalda.refused(*change, "retention.ms=-7", "--json")
    assert 1 == done.code
    (entity,) = done.json["entities"]
    assert "INVALID_CONFIG" == entity["error"]["code"]
    assert "retention.ms" in done.stderr


def test_faults_of_the_command_line_are_one_line_each(kalda: Commands) -> None:
    for arguments, expected in (
        (("describe",), "no entity is named; use one of --topic"),
        (("describe", "--topic", "a", "--broker", "0"), "topics and brokers are named at once"),
        (("describe", "--entity-name", "a"), "need --entity-type"),
        (("describe", "--broker", "one"), "broker 'one' is not allowed: it takes a broker's id"),
        (("describe", "--entity-type", "topics", "--entity-default"), "only brokers have default settings"),
        (("alter", "--topic", "a"), "there is nothing to alter"),
        (("alter", "--entity-type", "topics", "--add-config", "a=1"), "none of the topics is named"),
        (("alter", "--topic", "a", "--add-config", "b=1", "--delete-config", "b"), "b would change twice"),
        (
            ("alter", "--topic", "a", "--add-config-file", "nowhere"),
            "--add-config-file=nowhere: No such file",
        ),
    ):
        done = kalda.refused("configs", *arguments)
        assert (2, "") == (done.code, done.stdout)
        (line,) = done.stderr.splitlines()
        assert expected in line


def test_settings_of_a_group_are_altered_and_described(kalda: Commands) -> None:
    """The group need not exist: its settings wait for the members."""
    changes = "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000"
    kalda("configs", "alter", "--entity-type", "groups", "--entity-name", "team/a", "--add-config", changes)

    source = "DYNAMIC_GROUP_CONFIG"
    assert [
        ["groups", "team/a", "consumer.heartbeat.interval.ms", source, "-", "6000"],
        ["groups", "team/a", "consumer.session.timeout.ms", source, "-", "50000"],
    ] == kalda("configs", "describe", "--group", "team/a").rows
    listed = kalda("configs", "describe", "--entity-type", "groups").rows
    assert ["team/a", "team/a"] == [row[1] for row in listed]

    refused = kalda.refused(
        "configs", "alter", "--group", "b", "--add-config", "consumer.session.timeout.ms=1"
    )
    assert "`consumer.session.timeout.ms`=1 is not between" in refused.stderr
    kalda("configs", "alter", "--group", "team/a", "--delete-config", "consumer.session.timeout.ms")
    (entity,) = kalda.json("configs", "describe", "--group", "team/a", "--all")["entities"]
    assert {
        "consumer.assignment.interval.ms": "0",  # as the test cluster has it
        "consumer.heartbeat.interval.ms": "6000",
        "consumer.session.timeout.ms": "45000",
    } == {each["name"]: each["value"] for each in entity["configs"] if each["name"].startswith("consumer.")}
