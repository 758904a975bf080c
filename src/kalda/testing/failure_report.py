"""Describes the brokers of a failed test: topics with their last records, groups, transactions, warnings.

Reading it takes a bounded time and never fails: what cannot be read is named with the reason.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.partitions import OffsetSpec
from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.testing.kafka import OPEN_STATES, KafkaFacilities, transaction_lines
from kalda.testing.record_matching import record_text

SECONDS_MAX: Final = 5.0
"""How long the report of one test may take, such as where all brokers are down."""

_TOPICS_MAX: Final = 10
_RECORDS_MAX: Final = 5
"""How many of a topic's last records are shown."""
_GROUPS_MAX: Final = 10
_LINES_MAX: Final = 20
_CHARACTERS_MAX: Final = 20_000
_REQUEST_TIMEOUT_MS: Final = 1_000
_API_TIMEOUT_MS: Final = 2_000


def report_of(facilities: KafkaFacilities, warnings: Sequence[str]) -> str:
    """Return the report of a test, of bounded length.

    Args:
        facilities: What the test had.
        warnings: What its brokers have logged.
    """
    parts: list[list[str]] = []
    # On a thread: a client may wait longer than its time-outs say while nothing answers.
    thread = threading.Thread(target=_read, args=(facilities, parts), name="kalda-test-report", daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    lines = [line for part in list(parts) for line in part]
    if thread.is_alive():
        lines.append(f"the brokers did not answer within {SECONDS_MAX:g} s")
    if warnings:
        lines += ["warnings of the brokers:", *_bounded(warnings[-_LINES_MAX:], len(warnings) - _LINES_MAX)]
    text = "\n".join(lines) or "no topics, groups, transactions or warnings"
    if len(text) > _CHARACTERS_MAX:
        return f"{text[:_CHARACTERS_MAX]}\n… ({len(text)} characters)"
    return text


def _read(facilities: KafkaFacilities, parts: list[list[str]]) -> None:
    try:
        with Admin.from_config(
            facilities.client_config(),
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            default_api_timeout_ms=_API_TIMEOUT_MS,
            enable_metrics_push=False,
        ) as admin:
            parts.append(_topics(facilities, admin))
            parts.append(_groups(admin))
            parts.append(_transactions(admin))
    except Exception as error:
        # The first error is enough: brokers that do not answer would be waited for once more.
        parts.append([f"the brokers cannot be asked: {error}"])


def _topics(facilities: KafkaFacilities, admin: Admin) -> list[str]:
    names = sorted(admin.list_topics())
    lines = []
    for name in names[:_TOPICS_MAX]:
        try:
            records = facilities.records(name, uncommitted=True)
        except Exception as error:
            lines.append(f"topic {name}: cannot be read: {error}")
            continue
        lines.append(f"topic {name}: {counted(len(records), 'record')}")
        last = sorted(records, key=lambda record: record.timestamp_ms)[-_RECORDS_MAX:]
        lines += _bounded(map(record_text, last), len(records) - len(last), "before")
    return _bounded(lines, len(names) - _TOPICS_MAX, "topics", indent="")


def _groups(admin: Admin) -> list[str]:
    groups = admin.list_groups().results
    lines = []
    offsets = admin.list_consumer_group_offsets(
        [each.group_id for each in groups[:_GROUPS_MAX]], outcomes=True
    )
    committed = offsets.results
    partitions = {partition for found in committed.values() for partition in found}
    specs = dict.fromkeys(partitions, OffsetSpec.latest())
    ends = admin.list_offsets(specs, outcomes=True).results
    for each in groups[:_GROUPS_MAX]:
        state = "" if each.state is None else f", {each.state.value}"
        lines.append(f"group {each.group_id}{state}")
        shown = []
        for partition, entry in sorted(committed.get(each.group_id, {}).items(), key=_by_partition):
            if entry is None:
                continue
            lag = f", lag {ends[partition].offset - entry.offset}" if partition in ends else ""
            shown.append(f"{partition.topic}-{partition.partition}: committed {entry.offset}{lag}")
        lines += _bounded(shown[:_LINES_MAX], len(shown) - _LINES_MAX)
    return _bounded(lines, len(groups) - _GROUPS_MAX, "groups", indent="")


def _transactions(admin: Admin) -> list[str]:
    found = admin.list_transactions(states=OPEN_STATES).results
    if not found:
        return []
    lines = transaction_lines(admin, found[:_LINES_MAX])
    return ["open transactions:", *_bounded(lines, len(found) - _LINES_MAX)]


def _by_partition(item: tuple[TopicPartition, object]) -> tuple[str, int]:
    return item[0].topic, item[0].partition


def _bounded(lines: Iterable[str], more: int, what: str = "", *, indent: str = "  ") -> list[str]:
    shown = [f"{indent}{line}" for line in lines]
    return [*shown, f"{indent}and {more} more {what}".rstrip()] if more > 0 else shown
