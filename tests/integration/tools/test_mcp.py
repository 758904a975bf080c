"""`kalda mcp` as an agent's host uses it: the client of the package `mcp` over stdin and stdout."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kalda import Admin, NewTopic, Producer, TopicPartition
from kalda.command.examples import EXAMPLES
from tests.integration.tools.example_lines import words_of
from tests.shared_broker import shared_broker

mcp = pytest.importorskip("mcp")

READS = [
    "describe_cluster",
    "list_topics",
    "describe_topic",
    "list_groups",
    "describe_group",
    "read_records",
    "search_records",
    "describe_configs",
    "list_open_transactions",
    "doctor",
    "why",
    "history",
]
WRITES = [
    "create_topic",
    "delete_topic",
    "alter_config",
    "reset_offsets",
    "delete_records",
    "delete_group",
    "elect_preferred_leaders",
]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_broker(tmp_path_factory.mktemp("broker")) as bootstrap:
        with Admin(bootstrap_servers=bootstrap) as admin:
            config = {"retention.ms": "3600000", "segment.ms": "60000"}
            admin.create_topics([NewTopic("flights", 2, 1, config=config), NewTopic("spare", 1, 1)])
            with Producer(bootstrap_servers=bootstrap) as producer:
                for number in range(30):
                    producer.send("flights", f"LH{number} is boarding".encode(), partition=number % 2)
                producer.send("flights", bytes([255, 0]), key=b"binary", partition=0)
            admin.alter_consumer_group_offsets({"readers": {TopicPartition("flights", 0): 4}})
        yield bootstrap


class Agent:
    """An agent's host with a server of its own."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a call that succeeds."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        answer = json.loads(result.content[0].text)
        assert isinstance(answer, dict)
        return answer

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Return the error of a call that fails."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.content
        return str(result.content[0].text)

    async def tools(self) -> list[str]:
        """Return the names of the tools."""
        return [each.name for each in (await self.client.list_tools()).tools]


@asynccontextmanager
async def agent(bootstrap: str, tmp_path: Path, *options: str) -> AsyncIterator[Agent]:
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "kalda", "mcp", "--audit-log", str(tmp_path / "audit.jsonl"), *options],
        env={**os.environ, "KALDA_BOOTSTRAP_SERVER": bootstrap},
    )
    async with mcp.Client(server) as client:
        yield Agent(client)


def calls(tmp_path: Path) -> list[dict[str, Any]]:
    """Return the audit log."""
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    return [json.loads(line)["call"] for line in lines]


async def test_an_agent_looks_at_a_cluster_without_changing_it(bootstrap: str, tmp_path: Path) -> None:
    async with agent(bootstrap, tmp_path) as host:
        assert READS == await host.tools()
        described = await host.call("describe_cluster")
        topics = await host.call("list_topics", name_contains="fli")
        topic = await host.call("describe_topic", topic="flights")
        group = await host.call("describe_group", group="readers")
        groups = await host.call("list_groups")
        settings = await host.call("describe_configs", kind="topic", name="flights")
        checked = await host.call("doctor")
        transactions = await host.call("list_open_transactions")
        why = await host.call("why", kind="partition", name="flights-0")
        history = await host.refusal("history", what="planet x")
        missing = await host.refusal("describe_topic", topic="nope")
        wrong = await host.refusal("describe_configs", kind="planet", name="x")
        absent = await host.client.call_tool("delete_topic", {"topic": "flights"})

    assert 1 == len(described["brokers"])
    assert 0 == described["offline_partitions"]
    assert [{"name": "flights", "partitions": 2, "replicas": 1, "is_internal": False}] == topics["topics"]
    assert [(0, 0, 16), (1, 0, 15)] == [
        (each["partition"], each["first_offset"], each["next_offset"]) for each in topic["partitions"]
    ]
    assert 12 == group["total_lag"]
    assert ["readers"] == [each["group"] for each in groups["groups"]]
    (retention,) = (each for each in settings["settings"] if "retention.ms" == each["name"])
    assert ("3600000", "dynamic_topic_config") == (retention["value"], retention["origin"])
    assert checked["is_sound"], checked
    assert [] == transactions["transactions"]
    assert "partition flights-0" in json.dumps(why)
    assert "planet" in history
    assert "nope" in missing
    assert "kind is topic, broker or group" in wrong
    assert absent.is_error
    written = calls(tmp_path)
    assert ["describe_cluster", "list_topics"] == [each["request"] for each in written[:2]]
    assert ["success"] * 9 + ["failure"] * 4 == [each["outcome"] for each in written]
    assert ["topic=nope"] == written[10]["resources"]


async def test_an_agent_reads_and_searches_records_in_bounds(bootstrap: str, tmp_path: Path) -> None:
    async with agent(bootstrap, tmp_path) as host:
        last = await host.call("read_records", topic="flights", partition=0, limit=2)
        first = await host.call("read_records", topic="flights", partition=1, start_offset=0, limit=3)
        found = await host.call("search_records", topic="flights", text="LH7 ")
        none = await host.call("search_records", topic="flights", text="KLM")
        partial = await host.call("search_records", topic="flights", text="KLM", scanned_max=3)
        too_many = await host.refusal("read_records", topic="flights", limit=1_000_000)

    assert [14, 15] == [each["offset"] for each in last["records"]]
    assert {"base64": "/wA=", "bytes": 2} == last["records"][1]["value"]
    assert "binary" == last["records"][1]["key"]
    assert ["LH1 is boarding", "LH3 is boarding", "LH5 is boarding"] == [
        each["value"] for each in first["records"]
    ]
    assert not first["is_end_reached"]
    assert [(1, 3)] == [(each["partition"], each["offset"]) for each in found["records"]]
    assert (31, True, []) == (none["scanned"], none["is_end_reached"], none["records"])
    assert not partial["is_end_reached"]
    assert sum(partial["next_offsets"].values()) == partial["scanned"]
    assert "limit=1000000 is not allowed: it takes 1 to 200" in too_many


async def test_calls_that_fit_no_tool_are_refused_in_a_few_words_and_audited(
    bootstrap: str, tmp_path: Path
) -> None:
    """An argument that is ignored gives an answer to another question; a refused change is an attempt."""
    async with agent(bootstrap, tmp_path) as host:
        assert "there is no tool delete_topic" == await host.refusal("delete_topic", topic="flights")
        assert "read_records has no argument offset; its arguments: topic, partition" in await host.refusal(
            "read_records", topic="flights", offset=0
        )
        await host.refusal("list_topics", name_contains=["flights"])
        assert 2_100 > len(await host.refusal("why", kind="x" * 1_000_000, name="flights"))
        assert "flights" in str(await host.call("list_topics", name_contains="flights"))

    assert [
        ("delete_topic", "failure"),
        ("read_records", "failure"),
        ("list_topics", "failure"),
        ("why", "failure"),
        ("list_topics", "success"),
    ] == [(each["request"], each["outcome"]) for each in calls(tmp_path)]
    assert ["change", "request"] == [each["event"] for each in calls(tmp_path)[:2]]
    assert ["topic=flights", "offset=0"] == calls(tmp_path)[1]["resources"]


async def test_changes_need_the_phrase_that_the_first_call_returns(bootstrap: str, tmp_path: Path) -> None:
    async def twice(host: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
        asked = await host.call(tool, **arguments)
        assert not asked["is_changed"], asked
        refused = await host.call(tool, **arguments, confirm="yes")
        assert not refused["is_changed"], refused
        return await host.call(tool, **arguments, **asked["to_do_it"])

    async with agent(bootstrap, tmp_path, "--allow-writes") as host:
        assert READS + WRITES == await host.tools()
        made = await twice(
            host, "create_topic", topic="made", partitions=2, settings={"retention.ms": "1000"}
        )
        altered = await twice(
            host, "alter_config", kind="topic", name="made", set_values={"segment.ms": "500"}
        )
        reset = await twice(host, "reset_offsets", group="readers", topic="flights", to="earliest")
        lost = await host.call("delete_records", topic="flights", before_offsets={"0": 3})
        deleted = await twice(host, "delete_records", topic="flights", before_offsets={"0": 3})
        secret = await host.refusal(
            "alter_config", kind="broker", name="0", set_values={"ssl.key.password": "s3cret"}
        )
        gone = await twice(host, "delete_group", group="readers")
        removed = await twice(host, "delete_topic", topic="spare")
        topics = await host.call("list_topics")
        group = await host.call("list_groups")

    assert 2 == made["partitions"]
    assert "alter topic made: segment.ms=500" == altered["done"]
    assert "reset group readers on flights to 0=0, 1=0" == reset["done"]
    assert {"0": 3} == lost["would"]["offsets_lost"]
    assert "delete records of flights: 0 before 3" == deleted["done"]
    assert "secrets are set with" in secret
    assert gone["is_changed"]
    assert removed["is_changed"]
    assert ["flights", "made"] == [each["name"] for each in topics["topics"]]
    assert [] == group["groups"]
    text = (tmp_path / "audit.jsonl").read_text()
    assert "s3cret" not in text
    done = [each for each in calls(tmp_path) if "change" == each["event"] and "reason" not in each]
    assert [
        "create_topic",
        "alter_config",
        "reset_offsets",
        "delete_records",
        "delete_group",
        "delete_topic",
    ] == [each["request"] for each in done]


def test_the_examples_are_understood() -> None:
    from kalda.tools.mcp.command import mcp as command

    for line in EXAMPLES["mcp"]:
        words = words_of(line)[0]
        assert command.make_context("mcp", words[1:]).params
