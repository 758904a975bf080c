"""The tools for partitions, directories, features and the whole cluster, each against a broker."""

import json
from pathlib import Path

import pytest

from tests.integration.tools.commands import Commands
from tests.integration.tools.test_groups import fill


@pytest.fixture(scope="module", autouse=True)
def topic(kalda: Commands) -> str:
    fill(kalda, "flights", partitions=2)
    return "flights"


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("latest", ["10", "-"]),
        ("-1", ["10", "-"]),
        ("earliest", ["0", "-"]),
        ("max-timestamp", ["9", "1000000009000"]),
        ("1000000004500", ["5", "1000000005000"]),
        ("2001-09-09T01:46:44.500", ["5", "1000000005000"]),
        ("2030-01-01T00:00:00", ["-", "-"]),
    ],
)
def test_offsets_are_found_by_time(kalda: Commands, moment: str, expected: list[str]) -> None:
    (row,) = kalda("offsets", "--topic-partitions", "flights:0", "--time", moment).rows

    assert ["flights", "0", *expected] == row


def test_offsets_of_all_topics_are_found(kalda: Commands) -> None:
    found = kalda.json("offsets", "--exclude-internal-topics")["offsets"]

    assert {("flights", 0): 10, ("flights", 1): 0} == {
        (each["topic"], each["partition"]): each["offset"] for each in found
    }
    rows = kalda("offsets", "flights", "--partitions", "1").rows
    assert [["flights", "1", "0", "-"]] == rows


def test_rules_choose_partitions_as_in_kafkas_tool(kalda: Commands) -> None:
    for rules in ("fl.*:0-1", "flights:-1", ":0"):
        rows = kalda("offsets", "--topic-partitions", rules, "--exclude-internal-topics").rows
        assert [["flights", "0", "10", "-"]] == rows
    refused = kalda.refused("offsets", "--topic-partitions", "flights:2-")
    assert "none of the topics has a partition of --topic-partitions=flights:2-" in refused.stderr


def test_wrong_times_are_refused(kalda: Commands) -> None:
    assert "--time=-9 is not allowed: of negative numbers" in kalda.refused("offsets", "--time", "-9").stderr
    assert "--time=soon is not allowed: it takes a date" in kalda.refused("offsets", "--time", "soon").stderr


def test_partitions_that_no_topic_has_are_an_error(kalda: Commands) -> None:
    """An empty table would look as if the partition were empty."""
    kalda("topics", "create", "few", "--partitions", "2")

    assert [["few", "1", "0", "-"]] == kalda("offsets", "few", "--partitions", "1").rows
    done = kalda.refused("offsets", "few", "--partitions", "7")
    assert "kalda: none of the topics has a partition of --partitions=7\n" == done.stderr


def test_records_are_deleted_by_option_and_by_file(kalda: Commands, tmp_path: Path) -> None:
    fill(kalda, "short")
    rows = kalda("delete-records", "--topic", "short:0", "--before-offset", 3).rows
    assert [["short", "0", "3"]] == rows
    file = tmp_path / "offsets.json"
    entry = {"topic": "short", "partition": 0, "offset": 5}
    file.write_text(json.dumps({"partitions": [entry], "version": 1}))
    (deleted,) = kalda.json("delete-records", "--offset-json-file", str(file))["partitions"]
    assert (5, None) == (deleted["low_watermark"], deleted["error"])
    kalda("delete-records", "--topic", "short", "--all")
    assert [["short", "0", "10", "-"]] == kalda("offsets", "short", "--time", "earliest").rows

    done = kalda.refused("delete-records", "--topic", "short", "--before-offset", 99)
    assert 1 == done.code
    assert "OFFSET_OUT_OF_RANGE" in done.stderr
    assert 2 == kalda.refused("delete-records", "--topic", "short").code


def test_leaders_are_elected(kalda: Commands, tmp_path: Path) -> None:
    elect = ("elect-leaders", "--election-type", "preferred")
    assert [["flights", "0", "not-needed"], ["flights", "1", "not-needed"]] == kalda(
        *elect, "--topic", "flights"
    ).rows
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "flights", "partition": 1}]}')
    (elected,) = kalda.json(*elect, "--path-to-json-file", str(file))["partitions"]
    assert ("flights", 1, "not-needed", None) == tuple(elected.values())
    assert [] == kalda(*elect, "--all-topic-partitions").rows
    done = kalda.refused(*elect, "--topic", "flights:7")
    assert 1 == done.code
    assert "flights-7" in done.stderr
    assert "--election-type=clean is not allowed: it takes preferred or unclean" in (
        kalda.refused("elect-leaders", "--election-type", "clean").stderr
    )


def test_log_directories_are_described(kalda: Commands) -> None:
    directories, logs = kalda("log-dirs", "describe", "--topic", "flights").stdout.split("\n\n")
    (row,) = (line.split() for line in directories.splitlines()[1:])
    assert ["0", "online", "2"] == [row[0], *row[2:4]]
    assert [["flights", "0"], ["flights", "1"]] == [line.split()[2:4] for line in logs.splitlines()[1:]]
    (broker,) = kalda.json("log-dirs", "describe", "--broker-list", "0")["brokers"]
    (directory,) = broker["directories"]
    sizes = {(each["topic"], each["partition"]): each["size"] for each in directory["logs"]}
    assert sizes["flights", 0] > 0 == sizes["flights", 1]
    assert directory["total_bytes"] > directory["usable_bytes"] > 0


def test_features_are_described_and_changed(kalda: Commands) -> None:
    def level() -> dict[str, str]:
        return {row[0]: row[3] for row in kalda("features", "describe").rows}

    assert {"group.version": "1", "share.version": "1", "transaction.version": "2"} == level()
    change = ("--feature", "transaction.version=1")
    assert (
        "Would downgrade transaction.version to level 1.\n"
        == kalda("features", "downgrade", *change, "--dry-run").stdout
    )
    assert "2" == level()["transaction.version"]
    assert "Downgraded transaction.version to level 1.\n" == kalda("features", "downgrade", *change).stdout
    assert "1" == level()["transaction.version"]
    kalda("features", "upgrade", "--feature", "transaction.version=2")
    assert "2" == level()["transaction.version"]
    done = kalda.refused("features", "upgrade", "--feature", "transaction.version=9", "--json")
    assert 1 == done.code
    assert done.json["features"][0]["error"]["code"] is not None
    done = kalda.refused("features", "disable", "--feature", "nope")
    assert 1 == done.code
    assert "Feature nope not found" in done.stdout + done.stderr
    assert 2 == kalda.refused("features", "upgrade").code


def test_a_cluster_is_shown_in_one_screen(kalda: Commands) -> None:
    summary, brokers, rest = kalda("cluster", "describe").stdout.split("\n\n")
    assert ["CLUSTER-ID", "CONTROLLER", "BROKERS"] == summary.split()[:3]
    host, port = kalda.bootstrap.split(":")
    assert ["0", host, port, "-", "true", "4.4"] == brokers.splitlines()[1].split()[:6]
    assert "The cluster is healthy." == rest.splitlines()[-1]

    described = kalda.json("cluster", "describe")
    assert (True, [], 0) == (described["is_healthy"], described["problems"], described["controller"])
    assert described["cluster_id"] == kalda("cluster", "id").stdout.strip()
    apis = {each["api"]: each for each in kalda.json("cluster", "api-versions", "--broker", "0")["apis"]}
    assert (1, 18) == (apis["FETCH"]["key"], apis["FETCH"]["used"])
