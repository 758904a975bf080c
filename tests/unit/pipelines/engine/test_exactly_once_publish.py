"""A batch's records are published once: the mark and the records are in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.producer.producer import Producer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.engine.exactly_once_publish import publish_once

ROWS = pa.record_batch({"key": [b"k"], "value": [b"v"]})


@dataclass
class Broker:
    """A producer and an admin with a topic and a mark in memory; notes the order of calls."""

    calls: list[str] = field(default_factory=list)
    mark: OffsetAndMetadata | None = None
    records: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def init_transactions(self) -> None:
        self.calls.append("init")

    def list_consumer_group_offsets(self, groups: dict[str, Any], *, require_stable: bool) -> Any:
        assert require_stable
        self.calls.append("read the mark")
        ((group, (place,)),) = groups.items()
        return {group: {place: self.mark}}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = (self.mark, self.records)
        try:
            yield
        except BaseException:
            self.mark, self.records = before
            raise
        self.calls.append("commit")

    def send_arrow(self, topic: str, rows: pa.RecordBatch) -> Any:
        self.records += rows.num_rows
        failure = self.failure

        class Sent:
            def result(self, timeout_s: float) -> None:
                if failure is not None:
                    raise failure

        return Sent()

    def send_offsets_to_transaction(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        assert "orders-dlq" == group
        self.mark = offsets[TopicPartition("orders.dlq", 0)]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    def producer(settings: dict[str, str]) -> Broker:
        made.settings = settings
        return made

    monkeypatch.setattr(Producer, "from_config", producer)
    monkeypatch.setattr(Admin, "from_config", lambda settings: made)
    return made


def publish(query_id: str, batch_id: int, properties: dict[str, str] | None = None) -> bool:
    return publish_once(
        properties or {"bootstrap.servers": "127.0.0.1:1"},
        topic="orders.dlq",
        name="orders-dlq",
        query_id=query_id,
        batch_id=batch_id,
        batches=iter([ROWS, ROWS]),
    )


def test_a_repeat_sends_nothing(broker: Broker) -> None:
    assert publish("query", 3)
    assert (2, OffsetAndMetadata(4, "query")) == (broker.records, broker.mark)
    assert not publish("query", 3)
    assert not publish("query", 2), "an earlier batch was published before this one"
    assert 2 == broker.records
    assert publish("query", 4)
    assert 4 == broker.records


def test_the_mark_of_another_query_counts_as_none(broker: Broker) -> None:
    """A query that begins anew numbers its batches from 0."""
    publish("query", 9)
    assert publish("another", 0)
    assert OffsetAndMetadata(1, "another") == broker.mark


def test_an_earlier_run_is_fenced_before_the_mark_is_read(broker: Broker) -> None:
    """It could publish between the look at the mark and the transaction."""
    publish("query", 0)
    assert ["init", "read the mark", "commit"] == broker.calls


def test_a_record_that_is_not_acknowledged_leaves_no_mark(broker: Broker) -> None:
    broker.failure = ConnectionError("not acknowledged")
    with pytest.raises(ConnectionError, match="not acknowledged"):
        publish("query", 0)
    assert (None, 0) == (broker.mark, broker.records)
    broker.failure = None
    assert publish("query", 0)


def test_settings_of_the_transaction_win_over_those_of_the_cluster(broker: Broker) -> None:
    publish("query", 0, {"acks": "1", "transactional.id": "mine", "max.request.size": "7"})
    assert ("all", "orders-dlq", "orders-dlq", "7") == tuple(
        broker.settings[name] for name in ("acks", "transactional.id", "client.id", "max.request.size")
    )
