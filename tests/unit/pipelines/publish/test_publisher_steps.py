"""What a publisher sends in which transaction, and where it goes on after a failure, without brokers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pytest

from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.publish import table_publisher
from kalda.pipelines.publish.position import PositionError
from kalda.pipelines.publish.table_publisher import PublishOptions, TablePublisher
from kalda.pipelines.tables import ChangeSet, TableError
from kalda.pipelines.topic_rows import TopicRows

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])
Rows = Sequence[tuple[str, str]]
OPTIONS = PublishOptions(
    pipeline="orders",
    group="orders-group",
    table="file:///t",
    topic="out",
    rows=TopicRows(("key",)),
    producer={"bootstrap.servers": "127.0.0.1:1"},
)


def batch(rows: Rows) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@dataclass
class Versions:
    """A table of versions in memory: what each inserted and deleted."""

    changes: list[list[tuple[str, Rows]]] = field(default_factory=list)
    first: int = 0
    """The oldest version whose changes are known."""

    def version(self) -> int | None:
        return len(self.changes) - 1 if self.changes else None

    def read(self, *, version: int | None = None) -> Iterator[pa.RecordBatch]:
        rows: dict[str, str] = {}
        for kinds in self.changes[: (version if version is not None else len(self.changes)) + 1]:
            for kind, changed in kinds:
                for key, value in changed:
                    rows.pop(key, None) if kind == "delete" else rows.update({key: value})
        for row in rows.items():
            yield batch([row])

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[ChangeSet]:
        last = len(self.changes) - 1 if until is None else until
        for version in range(0 if since is None else since + 1, last + 1):
            if version < self.first:
                raise TableError(f"version {version} is gone")
            for kind, rows in self.changes[version]:
                yield ChangeSet(version, kind, batch(rows))


@dataclass
class Broker:
    """A producer and an admin with the topic and the group's offset in memory."""

    transactions: list[list[tuple[bytes, bytes | None]]] = field(default_factory=list)
    committed: OffsetAndMetadata | None = None
    fail_at: int | None = None
    """The transaction that is aborted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def init_transactions(self) -> None:
        pass

    def partitions_for(self, topic: str) -> None:
        pass

    def flush(self, timeout_s: float) -> None:
        pass

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._sent: list[tuple[bytes, bytes | None]] = []
        self._offset = self.committed
        yield
        if self.fail_at == len(self.transactions):
            self.fail_at = None
            raise ConnectionError("the broker is gone")
        self.transactions.append(self._sent)
        self.committed = self._offset

    def send_arrow(self, topic: str, rows: pa.RecordBatch) -> Any:
        self._sent += [(row["key"], row["value"]) for row in rows.to_pylist()]

        class Done:
            def result(self, timeout_s: float) -> None:
                pass

        return Done()

    def send_offsets_to_transaction(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        (self._offset,) = offsets.values()

    def list_consumer_group_offsets(self, groups: Sequence[str], **options: object) -> Any:
        found = {} if self.committed is None else {TopicPartition("out", 0): self.committed}
        return {groups[0]: found}

    @property
    def records(self) -> list[tuple[str, str | None]]:
        return [
            (key.decode(), None if value is None else value.decode())
            for sent in self.transactions
            for key, value in sent
        ]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    for name in ("Producer", "Admin"):
        monkeypatch.setattr(getattr(table_publisher, name), "from_config", lambda settings: made)
    return made


def publish(table: Versions, options: PublishOptions = OPTIONS) -> tuple[int, int]:
    with TablePublisher(options, table) as publisher:
        result = publisher.run_once()
        return result.records, result.tombstones


def test_the_rows_come_first_and_then_each_version(broker: Broker) -> None:
    table = Versions([[("insert", [("a", "1"), ("b", "2")])]])
    assert (2, 0) == publish(table)
    assert (0, 0) == publish(table)
    table.changes += [[("insert", [("c", "3")])], [], [("insert", [("d", "4")])]]
    assert (2, 0) == publish(table)
    assert [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")] == broker.records
    assert [2, 1, 1] == [len(sent) for sent in broker.transactions]


def test_a_table_that_is_not_there_publishes_nothing(broker: Broker) -> None:
    with TablePublisher(OPTIONS, Versions()) as publisher:
        result = publisher.run_once()
        assert (0, None, None) == (result.records, result.version, publisher.position)


@pytest.mark.parametrize("fail_at", range(7))
def test_a_failed_transaction_is_sent_again_and_no_other(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    """A position inside a step counts rows, so that its rest follows."""
    monkeypatch.setattr(table_publisher, "TRANSACTION_ROWS_MAX", 2)
    table = Versions(
        [
            [("insert", [(f"a{number}", "1") for number in range(5)])],
            [("insert", [("b0", "2"), ("b1", "2"), ("b2", "2")]), ("delete", [("a0", "1")])],
        ]
    )
    broker.fail_at = fail_at
    options = replace(OPTIONS, tombstones=True)
    first = Versions(table.changes[:1])
    for each in (first, table, table, table):
        try:
            publish(each, options)
        except ConnectionError:
            publish(each, options)
    expected = [*((f"a{number}", "1") for number in range(5)), *((f"b{number}", "2") for number in range(3))]
    assert [*expected, ("a0", None)] == broker.records


def test_keys_that_a_version_deletes_and_inserts_are_not_deleted(broker: Broker) -> None:
    table = Versions([[("insert", [("a", "1"), ("b", "1")])]])
    options = replace(OPTIONS, tombstones=True)
    publish(table, options)
    update = [("a", "1")]
    table.changes.append(
        [("update_preimage", update), ("delete", [("b", "1")]), ("update_postimage", [("a", "2")])]
    )
    assert (2, 1) == publish(table, options)
    assert [("b", None), ("a", "2")] == broker.records[2:]
    table.changes.append([("delete", [("a", "2")])])
    assert (0, 0) == publish(table, OPTIONS), "without tombstones deletions are passed over"


def test_too_many_keys_of_a_version_publish_each_deletion(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "VERSION_KEYS_MAX", 0)
    table = Versions([[("insert", [("a", "1")])]])
    options = replace(OPTIONS, tombstones=True)
    publish(table, options)
    table.changes.append([("delete", [("a", "1")]), ("insert", [("a", "2")])])
    assert (2, 1) == publish(table, options)
    assert [("a", None), ("a", "2")] == broker.records[1:]


def test_without_changes_the_whole_table_is_published_when_it_has_changed(broker: Broker) -> None:
    table = Versions([[("insert", [("a", "1")])]])
    options = replace(OPTIONS, changes=False)
    assert [(1, 0), (0, 0)] == [publish(table, options), publish(table, options)]
    table.changes.append([("insert", [("b", "2")])])
    assert (2, 0) == publish(table, options)


def test_a_stop_ends_behind_the_transaction_under_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_publisher, "TRANSACTION_ROWS_MAX", 1)
    table = Versions([[("insert", [("a", "1"), ("b", "2")])]])
    with TablePublisher(OPTIONS, table) as publisher:
        publisher.stop()
        publisher.run_once()
    assert [] == broker.records
    assert (2, 0) == publish(table)


def test_a_version_that_is_gone_is_an_error(broker: Broker) -> None:
    table = Versions([[("insert", [("a", "1")])], []])
    publish(table)
    table.changes += [[("insert", [("b", "2")])], []]
    table.first = 3
    with pytest.raises(TableError, match="version 2 is gone"):
        publish(table)


def test_the_progress_of_another_table_is_refused(broker: Broker) -> None:
    publish(Versions([[("insert", [("a", "1")])]]))
    with pytest.raises(PositionError, match="has published file:///t in out, not file:///other"):
        publish(Versions([[]]), replace(OPTIONS, table="file:///other"))
