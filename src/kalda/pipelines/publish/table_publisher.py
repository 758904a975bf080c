"""Publishes a table in a topic: first its rows, then what each new version changes.

A transaction holds records together with the position behind them, as the metadata of an offset of the
pipeline's group for the first partition of the topic. So a crash repeats no record and loses none. Rows come
from the table on the driver, and go to the producer in Arrow batches; no Spark is involved.

Within a version, a deletion is published before a later value of its key, and a key that the version both
deletes and inserts is not deleted.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from kalda.clients.admin.admin import Admin
from kalda.clients.producer.producer import Producer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.publish.position import Position, PositionError, Step
from kalda.pipelines.topic_rows import TopicRows

logger: Final = logging.getLogger(__name__)

TRANSACTION_ROWS_MAX: Final = 100_000
"""Rows of one transaction, about: readers of the topic wait for its end."""
VERSION_KEYS_MAX: Final = 2_000_000
"""Keys that one version inserts and that are remembered to leave out their deletions. A version with more
publishes each deletion, which is right too, but is more records."""
_DELIVERY_TIMEOUT_S: Final = 180.0
_DELETED: Final = frozenset({"delete", "update_preimage"})
_TRANSACTION_TIMEOUT_MS: Final = "300000"


class Changes(Protocol):
    """Rows that a version added or took; `kalda.pipelines.tables` has the class."""

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def kind(self) -> str:
        """``insert``, ``delete``, ``update_preimage`` or ``update_postimage``."""
        ...

    @property
    def rows(self) -> pa.RecordBatch:
        """The rows."""
        ...


class PublishedTable(Protocol):
    """The part of a table that is used here."""

    def version(self) -> int | None:
        """Return the current version; None for a table that does not exist or is empty."""
        ...

    def read(self, *, version: int | None = None) -> Iterator[pa.RecordBatch]:
        """Return the rows of a version, in the same order each time."""
        ...

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[Changes]:
        """Return the changes of versions, oldest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """What a publisher does.

    Args:
        pipeline: names the transactional id, which fences an earlier process of the same pipeline.
        group: the group in whose offsets the progress is.
        table: the table's URI.
        producer: settings of the target cluster and of the producer, with Kafka's dotted names.
        changes: whether changes are published; without, the whole table is, each time it has changed.
        tombstones: whether a deleted row becomes a record without a value; without, it is passed over.
    """

    pipeline: str
    group: str
    table: str
    topic: str
    rows: TopicRows
    producer: Mapping[str, str]
    changes: bool = True
    tombstones: bool = False


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What one run published."""

    records: int
    tombstones: int
    version: int | None
    """The version of the table that the topic holds now; None while there is no table."""


class TablePublisher:
    """Publishes one table; used in a ``with`` block, by one thread.

    Raises:
        PositionError: the progress belongs to another table.
        ClientError: the cluster cannot be reached or refuses the producer.
    """

    def __init__(self, options: PublishOptions, table: PublishedTable) -> None:
        self._options: Final = options
        self._table: Final = table
        self._resources: Final = ExitStack()
        self._stop: Final = threading.Event()
        self._progress: Final = TopicPartition(options.topic, 0)

    def __enter__(self) -> Self:
        options = self._options
        try:
            settings = {
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "linger.ms": "20",
                **options.producer,
                "transactional.id": f"kalda-publish-{options.pipeline}",
                "enable.idempotence": "true",
                "client.id": options.group,
            }
            self._producer = self._resources.enter_context(Producer.from_config(settings))
            # Before the progress is read: an earlier process could still commit some.
            self._producer.init_transactions()
            # Creates the topic where brokers do that: a table without rows is published by a transaction
            # that has only the progress, and brokers refuse offsets of a topic that does not exist.
            self._producer.partitions_for(options.topic)
            self._position = self._committed()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    @property
    def position(self) -> Position | None:
        """How far the table is published; None before the first row."""
        return self._position

    def stop(self) -> None:
        """Make `run_once` return behind the transaction under way; callable from any thread."""
        self._stop.set()

    def run_once(self) -> PublishResult:
        """Publish what the table has and the topic has not.

        Raises:
            TableError: a version that is needed is gone; its message says what to do.
            TopicRowError, EncodeError: a row cannot become a record.
            ClientError: the topic could not be written; what was committed stays.
        """
        latest = self._table.version()
        run = _Run()
        if latest is None:
            return run.result(None)
        position = self._position
        if position is None or (position.step is Step.SNAPSHOT and not position.is_complete):
            self._publish_snapshot(run, latest if position is None else position.version)
        if self._options.changes:
            self._publish_changes(run, latest)
        elif self._position is not None and self._position.version != latest:
            self._publish_snapshot(run, latest)
        done = self._position
        return run.result(done.version if done is not None else None)

    def _publish_snapshot(self, run: "_Run", version: int) -> None:
        self._publish(run, Step.SNAPSHOT, version, None, self._snapshot(version))

    def _publish_changes(self, run: "_Run", latest: int) -> None:
        position = self._position
        if position is not None and position.step is Step.CHANGES and not position.is_complete:
            changes = self._table.read_changes(position.since, position.version)
            self._publish_version(run, position.since, position.version, changes)
            position = self._position
        if position is None or not position.is_complete or position.version == latest:
            return
        since = position.version
        by_version = groupby(self._table.read_changes(since, latest), key=attrgetter("version"))
        for version, changes in by_version:
            self._publish_version(run, since, version, changes)
            if self._stop.is_set():
                return
            since = version
        if since != latest:
            # The last versions changed no row; the table may forget a version that a position stays at.
            self._publish_version(run, since, latest, iter(()))

    def _publish_version(
        self, run: "_Run", since: int | None, version: int, changes: Iterator[Changes]
    ) -> None:
        self._publish(run, Step.CHANGES, version, since, self._changes(since, version, changes))

    def _publish(
        self, run: "_Run", step: Step, version: int, since: int | None, records: "Iterator[_Records]"
    ) -> None:
        """Publish the rest of a step, in as many transactions as it takes."""
        position = self._position
        is_resumed = position is not None and (position.step, position.version) == (step, version)
        done = position.rows if position is not None and is_resumed else 0
        pending = _skip(records, done)
        is_complete = False
        while not is_complete and not self._stop.is_set():
            sent = 0
            with self._producer.transaction():
                futures = []
                is_complete = True
                for each in pending:
                    futures.append(self._producer.send_arrow(self._options.topic, each.batch))
                    sent += each.batch.num_rows
                    run.add(each)
                    if sent >= TRANSACTION_ROWS_MAX:
                        is_complete = False
                        break
                self._producer.flush(_DELIVERY_TIMEOUT_S)
                for future in futures:
                    future.result(_DELIVERY_TIMEOUT_S)
                done += sent
                reached = Position(self._options.table, step, version, done, is_complete, since)
                offset = OffsetAndMetadata(max(version, 0), reached.to_json())
                self._producer.send_offsets_to_transaction({self._progress: offset}, self._options.group)
            self._position = reached

    def _snapshot(self, version: int) -> "Iterator[_Records]":
        for rows in self._table.read(version=version):
            yield _Records(self._options.rows.records(rows), is_deletion=False)

    def _changes(self, since: int | None, version: int, changes: Iterator[Changes]) -> "Iterator[_Records]":
        rows_of = self._options.rows
        inserted = self._inserted_keys(since, version) if self._options.tombstones else None
        for each in changes:
            if each.kind not in _DELETED:
                yield _Records(rows_of.records(each.rows), is_deletion=False)
                continue
            if not self._options.tombstones:
                continue
            deleted = rows_of.tombstones(each.rows)
            if inserted is not None:
                deleted = deleted.filter(pc.invert(pc.is_in(deleted.column("key"), value_set=inserted)))
            if deleted.num_rows:
                yield _Records(deleted, is_deletion=True)

    def _inserted_keys(self, since: int | None, version: int) -> pa.Array | None:
        """Return the keys that a version inserts; None for too many."""
        found: list[pa.Array] = []
        count = 0
        for each in self._table.read_changes(since, version):
            if each.kind in _DELETED:
                continue
            keys = self._options.rows.keys(each.rows)
            if keys is None:
                return pa.array([], pa.binary())
            count += len(keys)
            if count > VERSION_KEYS_MAX:
                return None
            found.append(keys)
        return pa.concat_arrays(found) if found else pa.array([], pa.binary())

    def _committed(self) -> Position | None:
        with Admin.from_config(
            {**_connection(self._options.producer), "client.id": self._options.group}
        ) as admin:
            committed = admin.list_consumer_group_offsets(
                [self._options.group], require_stable=True, outcomes=True
            )
        answer = committed[self._options.group].get(self._progress)
        if answer is None or not answer.metadata:
            return None
        position = Position.from_json(answer.metadata)
        if position.table != self._options.table:
            raise PositionError(
                f"pipeline {self._options.pipeline} has published {position.table} in {self._options.topic}, "
                f"not {self._options.table}; give the pipeline another name, or delete the offsets of group "
                f"{self._options.group} to publish the new table from its beginning"
            )
        return position


@dataclass(frozen=True, slots=True)
class _Records:
    batch: pa.RecordBatch
    is_deletion: bool


class _Run:
    """Counts the records of one run."""

    def __init__(self) -> None:
        self._records = 0
        self._tombstones = 0

    def add(self, records: _Records) -> None:
        self._records += records.batch.num_rows
        self._tombstones += records.batch.num_rows if records.is_deletion else 0

    def result(self, version: int | None) -> PublishResult:
        return PublishResult(self._records, self._tombstones, version)


def _skip(records: Iterator[_Records], count: int) -> Iterator[_Records]:
    """Leave out the first records, which are published."""
    for each in records:
        size = each.batch.num_rows
        if size <= count:
            count -= size
            continue
        yield _Records(each.batch.slice(count), each.is_deletion) if count else each
        count = 0


def _connection(properties: Mapping[str, str]) -> dict[str, str]:
    names = ("bootstrap.servers", "security.", "sasl.", "ssl.")
    return {name: value for name, value in properties.items() if name.startswith(names)}
