"""Implements the tools of `kalda mcp` that only read. Agents see the docstrings as descriptions."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from kalda.clients.errors import ClientError
from kalda.command.command import Tool
from kalda.command.embedded import json_of
from kalda.command.errors import ToolError
from kalda.command.option_types import INT32_MAX, INT64_MAX
from kalda.common.json_text import strict_json
from kalda.common.types import TopicPartition
from kalda.inspection.cluster_health import RESPONSE_TIMEOUT_MS, partition_health, spoken_release
from kalda.inspection.doctor.diagnosis import examine_cluster
from kalda.inspection.doctor.findings import Severity
from kalda.tools.mcp.answers import (
    ANSWER_CHARACTERS_MAX,
    Answer,
    bounded,
    fitted,
    listed,
    record_answer,
    scrubbed,
    setting_answer,
)

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.configs import ConfigResource
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.clients.values import ConsumerRecord

RECORDS_MAX: Final = 200
"""Records that one call returns at most."""

SCANNED_MAX: Final = 200_000
"""Records that one search reads at most: some seconds."""

_READ_SECONDS: Final = 10.0
"""How long one call reads at most; an answer says whether it reached the end."""

_POLL_SECONDS: Final = 0.5
_POLL_RECORDS: Final = 500

RecordTest = Callable[["ConsumerRecord[bytes | None, bytes | None]"], bool]


class CallError(Exception):
    """A tool cannot do what it was asked for; the message is for the agent."""


class ReadTools:
    """The tools that change nothing.

    Args:
        admin: An open admin client.
        consumer: Makes a consumer of bytes without a group.
        tool: The command, for tools that run another one.
    """

    def __init__(
        self,
        admin: "AsyncAdmin",
        consumer: "Callable[[], AsyncConsumer[bytes | None, bytes | None]]",
        tool: Tool,
    ) -> None:
        self._tool: Final = tool
        self._admin: Final = admin
        self._consumer: Final = consumer

    async def describe_cluster(self) -> Answer:
        """Describe the cluster: brokers, controller, release, counts of partitions by state, features."""
        admin = self._admin
        described = await admin.describe_cluster()
        ids = [node.id for node in described.nodes]
        versions = await admin.describe_api_versions(ids, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
        topics = await admin.describe_topics(await admin.list_topics(include_internal=True), outcomes=True)
        health = partition_health(topics.results.values())
        features = await admin.describe_features()
        return {
            "cluster_id": described.cluster_id,
            "controller": None if described.controller is None else described.controller.id,
            **listed(
                "brokers",
                (
                    {
                        "id": node.id,
                        "host": node.host,
                        "port": node.port,
                        "rack": node.rack,
                        "is_running": node.id in versions.results,
                        "protocol": _release(versions.results.get(node.id)),
                        "leaders": health.leaders.get(node.id, 0),
                        "replicas": health.replicas.get(node.id, 0),
                    }
                    for node in described.nodes
                ),
            ),
            "topics": len(topics),
            "partitions": health.partitions,
            "offline_partitions": health.offline,
            "under_replicated_partitions": health.under_replicated,
            "not_led_by_preferred_replica": health.not_preferred,
            "features": {name: each.max_version_level for name, each in features.finalized_features.items()},
        }

    async def list_topics(self, name_contains: str = "", include_internal: bool = False) -> Answer:
        """List topics by name, with partitions and replicas. At most 200; narrow it with `name_contains`."""
        names = await self._admin.list_topics(include_internal=include_internal)
        shown, left_out = bounded(sorted(each for each in names if name_contains in each))
        described = await self._admin.describe_topics(shown, outcomes=True)
        topics = [
            {
                "name": each.name,
                "partitions": len(each.partitions),
                "replicas": min((len(info.replicas) for info in each.partitions), default=0),
                "is_internal": each.is_internal,
            }
            for each in described.results.values()
        ]
        return {"topics": topics, **({"left_out": left_out} if left_out else {})}

    async def describe_topic(self, topic: str) -> Answer:
        """Describe a topic: for each partition leader, replicas, in-sync replicas, first and next offset;
        and the settings that were set for it."""
        from kalda.clients.admin.configs import ConfigResource
        from kalda.clients.admin.partitions import OffsetSpec

        found = (await self._admin.describe_topics([topic]))[topic]
        partitions, left_out = bounded(found.partitions)
        led = [TopicPartition(topic, each.partition) for each in partitions if each.has_leader]
        first = await self._admin.list_offsets(dict.fromkeys(led, OffsetSpec.earliest()), outcomes=True)
        last = await self._admin.list_offsets(dict.fromkeys(led, OffsetSpec.latest()), outcomes=True)
        settings = (await self._admin.describe_configs([ConfigResource.topic(topic)]))[
            ConfigResource.topic(topic)
        ]

        def offset(outcomes: Any, number: int) -> int | None:
            result = outcomes.results.get(TopicPartition(topic, number))
            return None if result is None else result.offset

        return {
            "name": topic,
            "is_internal": found.is_internal,
            "partitions": [
                {
                    "partition": each.partition,
                    "leader": each.leader_id if each.has_leader else None,
                    "replicas": list(each.replicas),
                    "isr": list(each.isr),
                    "first_offset": offset(first, each.partition),
                    "next_offset": offset(last, each.partition),
                }
                for each in partitions
            ],
            **({"left_out": left_out} if left_out else {}),
            "settings": [
                setting_answer(each)
                for each in settings.values()
                if each.source.name == "DYNAMIC_TOPIC_CONFIG"
            ],
        }

    async def list_groups(self, name_contains: str = "") -> Answer:
        """List consumer groups with type and state. At most 200; narrow it with `name_contains`."""
        listing = await self._admin.list_groups()
        return {
            **listed(
                "groups",
                (
                    {
                        "group": each.group_id,
                        "type": None if each.type is None else each.type.value,
                        "state": None if each.state is None else each.state.value,
                        "protocol_type": each.protocol_type,
                    }
                    for each in listing.results
                    if name_contains in each.group_id
                ),
            ),
            **({"not_answered": [str(each) for each in listing.errors.values()]} if listing.errors else {}),
        }

    async def describe_group(self, group: str) -> Answer:
        """Describe a consumer group: state, members with their partitions, and for each partition the
        committed offset, the end of the log and the lag."""
        from kalda.clients.admin.partitions import OffsetSpec

        described = (await self._admin.describe_consumer_groups([group]))[group]
        offsets = (await self._admin.list_consumer_group_offsets([group]))[group].results
        committed = {each: found.offset for each, found in sorted(offsets.items()) if found is not None}
        ends = await self._admin.list_offsets(
            dict.fromkeys(committed, OffsetSpec.latest()), outcomes=True, timeout_ms=8000
        )
        owners = {each: member.member_id for member in described.members for each in member.assignment}
        rows = []
        for partition in sorted(committed.keys() | owners.keys()):
            end = ends.results.get(partition)
            offset = committed.get(partition)
            rows.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": offset,
                    "end": None if end is None else end.offset,
                    "lag": None if end is None or offset is None else end.offset - offset,
                    "member": owners.get(partition),
                }
            )
        lags = [row["lag"] for row in rows if isinstance(row["lag"], int)]
        return {
            "group": group,
            "state": described.state.value,
            "type": described.type.value,
            "assignor": described.partition_assignor or None,
            "total_lag": sum(lags),
            "members": [
                {
                    "member": each.member_id,
                    "client_id": each.client_id,
                    "host": each.host,
                    "partitions": len(each.assignment),
                }
                for each in bounded(described.members)[0]
            ],
            **listed("partitions", rows),
        }

    async def read_records(
        self,
        topic: str,
        partition: int | None = None,
        start_offset: int | None = None,
        start_timestamp_ms: int | None = None,
        limit: int = 20,
    ) -> Answer:
        """Read records of a topic, at most 200, without a group: nothing is committed.

        They start at `start_offset` (a negative one counts from the end, for each partition), or at
        `start_timestamp_ms`, or else at the last `limit` records. Values that are no text come as base64.
        """
        limit = between("limit", limit, 1, RECORDS_MAX)
        _check_start(start_offset, start_timestamp_ms)
        start = -limit if start_offset is None and start_timestamp_ms is None else start_offset
        found, is_complete, _ = await self._scan(
            topic, partition, start, start_timestamp_ms, limit=limit, scanned_max=SCANNED_MAX, test=None
        )
        answer: Answer = {"topic": topic, "is_end_reached": is_complete}
        return fitted(answer, "records", [record_answer(each) for each in found])

    async def search_records(
        self,
        topic: str,
        text: str,
        partition: int | None = None,
        start_offset: int | None = None,
        start_timestamp_ms: int | None = None,
        limit: int = 20,
        scanned_max: int = 20_000,
    ) -> Answer:
        """Search a topic for records whose key, value or a header contains a text (exact, case matters).

        It reads from `start_offset` (a negative one counts from the end), from `start_timestamp_ms`, or from
        the first record, and stops after `limit` matches, `scanned_max` records (at most 200,000), or ten
        seconds. `is_end_reached` is false where it stopped before the end; go on from `next_offsets`.
        """
        if not text:
            raise CallError("text is empty; give what to search for, or use read_records")
        limit = between("limit", limit, 1, RECORDS_MAX)
        scanned_max = between("scanned_max", scanned_max, 1, SCANNED_MAX)
        _check_start(start_offset, start_timestamp_ms)
        wanted = text.encode()

        def contains(record: "ConsumerRecord[bytes | None, bytes | None]") -> bool:
            parts = (record.key, record.value, *(value for _, value in record.headers))
            return any(wanted in each for each in parts if each is not None)

        start = 0 if start_offset is None and start_timestamp_ms is None else start_offset
        found, is_complete, scan = await self._scan(
            topic, partition, start, start_timestamp_ms, limit=limit, scanned_max=scanned_max, test=contains
        )
        answer: Answer = {"topic": topic, "is_end_reached": is_complete, **scan}
        return fitted(answer, "records", [record_answer(each) for each in found])

    async def describe_configs(
        self, kind: str, name: str = "", setting_contains: str = "", include_defaults: bool = False
    ) -> Answer:
        """Describe settings with the origin of each value: a topic's, a broker's or a group's own setting,
        one of all brokers, a static one of the file, or the default.

        `kind` is topic, broker or group; `name` is the topic, the broker's id, or the group; an empty name of
        a broker stands for the settings of all brokers. Secrets are hidden.
        """
        resource = config_resource(kind, name)
        found = (await self._admin.describe_configs([resource], include_synonyms=True))[resource]
        return {
            "resource": str(resource),
            **listed(
                "settings",
                (
                    setting_answer(each)
                    for each in found.values()
                    if setting_contains in each.name and (include_defaults or not each.is_default)
                ),
                400,
            ),
        }

    async def list_open_transactions(self) -> Answer:
        """List the transactions that are open, with their age, timeout and partitions."""
        from kalda.clients.admin.transactions import TransactionState

        states = [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]
        listing = await self._admin.list_transactions(states=states)
        shown, left_out = bounded(listing.results)
        names = [each.transactional_id for each in shown]
        described = await self._admin.describe_transactions(names, outcomes=True)
        now_ms = int(time.time() * 1000)
        return {
            "transactions": [
                {
                    "transactional_id": name,
                    "state": each.state.value,
                    "producer_id": each.producer_id,
                    "coordinator": each.coordinator_id,
                    "timeout_ms": each.transaction_timeout_ms,
                    "age_ms": None
                    if each.transaction_start_time_ms is None
                    else now_ms - each.transaction_start_time_ms,
                    "partitions": [str(part) for part in bounded(sorted(each.topic_partitions), 50)[0]],
                }
                for name, each in described.results.items()
            ],
            **({"left_out": left_out} if left_out else {}),
        }

    async def doctor(self, include_advice: bool = False) -> Answer:
        """Check the whole cluster as an expert would: brokers, partitions, settings, security, groups.

        Findings come the worst first, each with the values found, why it matters and what mends it. It takes
        some seconds, and up to half a minute if brokers hang.
        """
        from kalda.tools.doctor.read_cluster import read_cluster

        cluster = await read_cluster(self._admin)
        findings = examine_cluster(cluster)
        return {
            "is_sound": not any(each.severity > Severity.ADVICE for each in findings),
            "findings": [
                {
                    "check": each.check,
                    "severity": each.severity.word,
                    "what": each.what,
                    "evidence": each.evidence,
                    "why": each.why,
                    "mend": each.mend,
                }
                for each in findings
                if include_advice or each.severity > Severity.ADVICE
            ],
            "unread": list(cluster.unread),
        }

    async def why(self, kind: str, name: str, since: str = "P1D") -> Answer:
        """Say why something is as it is: a chain of causes from the brokers' events, the first cause first.

        `kind` and `name`: partition and orders-3, and what else `kalda why --help` lists. `since` is a date
        and time, or a duration before now such as PT2H.
        """
        from kalda.tools.why.command import why

        command = why.commands.get(kind)
        if command is None:
            raise CallError(f"kind={kind} is not allowed: it takes {', '.join(sorted(why.commands))}")
        return await self._embedded(command, ["--since", since, "--", name])

    async def history(self, what: str = "", since: str = "", until: str = "", at: str = "") -> Answer:
        """List changes of the cluster's metadata with time, author, and the values before and after; with
        `at`, return the state at that time.

        `what` is a kind and a name ("topic orders", "broker 2"), a kind, or a path; empty for all. Times are
        dates and times, or durations before now such as 2h.
        """
        from kalda.tools.cluster_history import history

        options = {"--since": since, "--until": until, "--at": at}
        words = [word for name, value in options.items() if value for word in (name, value)]
        return await self._embedded(history, [*words, "--", *what.split()])

    async def _embedded(self, command: click.Command, words: list[str]) -> Answer:
        try:
            document = scrubbed(await json_of(command, words, self._tool))
        except (click.UsageError, ToolError) as error:
            raise CallError(
                error.format_message() if isinstance(error, click.UsageError) else str(error)
            ) from error
        size = len(strict_json(document))
        if size > ANSWER_CHARACTERS_MAX:
            raise CallError(f"the answer has {size} characters; ask for less, for example a shorter time")
        return document if isinstance(document, dict) else {"result": document}

    async def _scan(
        self,
        topic: str,
        partition: int | None,
        start: int | None,
        start_timestamp_ms: int | None,
        *,
        limit: int,
        scanned_max: int,
        test: RecordTest | None,
    ) -> "tuple[list[ConsumerRecord[bytes | None, bytes | None]], bool, Answer]":
        """Read from the start until `limit` records pass the test, the end, or a bound."""
        found: list[ConsumerRecord[bytes | None, bytes | None]] = []
        scanned = 0
        async with self._consumer() as consumer:
            partitions = await self._partitions(topic, partition)
            ends = await consumer.end_offsets(partitions)
            await consumer.assign(partitions)
            positions = await _starts(consumer, partitions, ends, start, start_timestamp_ms)
            for each, offset in positions.items():
                await consumer.seek(each, offset)
            deadline = time.monotonic() + _READ_SECONDS
            while (
                _is_behind(positions, ends)
                and len(found) < limit
                and scanned < scanned_max
                and time.monotonic() < deadline
            ):
                records = await consumer.poll(_POLL_SECONDS, min(_POLL_RECORDS, scanned_max - scanned))
                for record in records:
                    where = record.topic_partition
                    if record.offset >= ends[where] or len(found) >= limit:
                        continue
                    scanned += 1
                    positions[where] = record.offset + 1
                    if test is None or test(record):
                        found.append(record)
                if not records:
                    # Behind the last record there may be markers, and records that compaction removed.
                    for each in partitions:
                        positions[each] = max(positions[each], await consumer.position(each))
        next_offsets = {str(each.partition): offset for each, offset in sorted(positions.items())}
        return found, not _is_behind(positions, ends), {"scanned": scanned, "next_offsets": next_offsets}

    async def _partitions(self, topic: str, partition: int | None) -> list[TopicPartition]:
        described = (await self._admin.describe_topics([topic]))[topic]
        numbers = [each.partition for each in described.partitions]
        if partition is not None and partition not in numbers:
            raise CallError(f"topic {topic} has no partition {partition}; it has {len(numbers)}")
        return [TopicPartition(topic, each) for each in numbers if partition in (None, each)]


async def _starts(
    consumer: "AsyncConsumer[bytes | None, bytes | None]",
    partitions: list[TopicPartition],
    ends: Mapping[TopicPartition, int],
    start: int | None,
    start_timestamp_ms: int | None,
) -> dict[TopicPartition, int]:
    first = await consumer.beginning_offsets(partitions)
    if start_timestamp_ms is not None:
        at_time = await consumer.offsets_for_times(dict.fromkeys(partitions, start_timestamp_ms))
        offsets = {}
        for each in partitions:
            found = at_time.get(each)
            offsets[each] = ends[each] if found is None else found.offset
        return offsets
    assert start is not None
    return {
        each: min(max(first[each], ends[each] + start if start < 0 else start), ends[each])
        for each in partitions
    }


def _is_behind(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
    return any(positions[each] < end for each, end in ends.items())


def config_resource(kind: str, name: str) -> "ConfigResource":
    """Return the thing that has settings.

    Raises:
        CallError: there is no such kind, or its name is missing.
    """
    from kalda.clients.admin.configs import ConfigResource

    if kind == "broker" and (not name or _is_broker_id(name)):
        return ConfigResource.broker(int(name) if name else None)
    if kind == "topic" and name:
        return ConfigResource.topic(name)
    if kind == "group" and name:
        return ConfigResource.group(name)
    raise CallError(
        f"kind={kind}, name={name!r}: kind is topic, broker or group; a topic and a group need a name, and "
        "that of a broker is its id"
    )


def _is_broker_id(name: str) -> bool:
    is_number = name.isascii() and name.isdecimal() and len(name) <= len(str(INT32_MAX))
    return is_number and int(name) <= INT32_MAX


def _check_start(offset: int | None, timestamp_ms: int | None) -> None:
    if offset is not None and timestamp_ms is not None:
        raise CallError("give start_offset or start_timestamp_ms, not both")
    if timestamp_ms is not None:
        between("start_timestamp_ms", timestamp_ms, 0, INT64_MAX)


def between(name: str, value: int, least: int, most: int) -> int:
    """Return a number.

    Raises:
        CallError: it is out of bounds.
    """
    if not least <= value <= most:
        raise CallError(f"{name}={value} is not allowed: it takes {least} to {most}")
    return value


def _release(versions: Any) -> str | None:
    if versions is None:
        return None
    return spoken_release({key: served.highest for key, served in versions.api_versions.items()})


def fault_text(error: Exception) -> str:
    """Return what an agent gets for an error: the message, with what to do where it has it."""
    if isinstance(error, ClientError | CallError):
        return str(error)
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "the cluster did not answer in time"
    return f"{type(error).__name__}: {error}"
