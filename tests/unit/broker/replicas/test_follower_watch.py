"""A follower's session costs what happens in it, and misses nothing of that."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kalda.broker.fetching import follower_watch
from kalda.broker.fetching.follower_watch import READ_ALL_SECONDS
from kalda.broker.replicas.replica_manager import FetchParams
from kalda.broker.requests.api import Pending
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import StopReplica
from kalda.protocol.fast.fetch import FetchAnswer, FetchEntry
from kalda.protocol.messages.fetch import FetchResponse, ForgottenTopic
from tests.unit.broker.data_path_fakes import LAG_SECONDS, TOPIC, TOPIC_ID, DataPath, batch, leadership

VERSION = 13
PARTITIONS = 5
FOLLOWER = 2


class Session:
    """A follower's session with a broker that leads five partitions, all of them empty and told about."""

    def __init__(self, broker: DataPath) -> None:
        self.broker = broker
        self.read: list[int] = []
        """The partitions that were read for the last request."""
        everything = dict.fromkeys(range(PARTITIONS), 0)
        opened = self._decode(self._send(everything, session_id=0, session_epoch=0, max_wait_ms=0))
        self.id, self.epoch = opened.session_id, 1
        reply = self.ask()
        self.broker.advance(500)
        assert [] == self.answer(reply)

    def ask(
        self, offsets: dict[int, int] | None = None, *, forget: Sequence[int] = (), **options: Any
    ) -> Any:
        forgotten = [ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forget))] if forget else []
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._send(
            offsets or {}, session_id=self.id, session_epoch=epoch, forgotten=forgotten, **options
        )

    def _send(self, offsets: dict[int, int], *, max_wait_ms: int = 500, **options: Any) -> Any:
        read = self.broker.replicas.read
        self.read = []

        def spy(
            params: FetchParams, entries: Sequence[FetchEntry], **more: Any
        ) -> tuple[list[FetchAnswer], int, bool]:
            self.read += [requested.partition for _, requested in entries]
            return read(params, entries, **more)

        self.broker.replicas.read = spy  # type: ignore[method-assign]  # told apart by what it was asked
        try:
            return self.broker.fetch_request(
                offsets, version=VERSION, replica_id=FOLLOWER, max_wait_ms=max_wait_ms, **options
            )
        finally:
            self.broker.replicas.read = read  # type: ignore[method-assign]  # see above

    def answer(self, reply: Any) -> list[tuple[int, int, int, int]]:
        """What a reply says: partition, error code, bytes of records, high watermark."""
        return [
            (part.partition_index, part.error_code, len(part.records or b""), part.high_watermark)  # type: ignore[arg-type]  # bytes, as decoded
            for topic in self._decode(reply).responses
            for part in topic.partitions
        ]

    def _decode(self, reply: Any) -> FetchResponse:
        return self.broker.fetch_response(reply, VERSION)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(*(leadership(index, replicas=(1, FOLLOWER)) for index in range(PARTITIONS)))
    yield path
    path.close()


SIZE = len(batch(b"a"))


def is_waiting(reply: Any) -> bool:
    return isinstance(reply, Pending) and not reply.is_done


def test_a_request_reads_only_what_it_names_and_what_something_happened_to(broker: DataPath) -> None:
    session = Session(broker)
    session.ask(max_wait_ms=0)
    assert list(range(PARTITIONS)) == sorted(session.read)
    broker.produce({3: batch(b"a")})
    assert [(3, 0, SIZE, 0)] == session.answer(session.ask({1: 0}))
    assert [3, 1] == session.read


def test_every_partition_is_read_again_after_a_while(broker: DataPath) -> None:
    """The leader must hear of an idle follower, or it would fall out of the in-sync replicas."""
    session = Session(broker)
    session.ask(max_wait_ms=0)
    session.ask(max_wait_ms=0)
    assert [] == session.read
    broker.advance(round(READ_ALL_SECONDS * 1000))
    session.ask(max_wait_ms=0)
    assert list(range(PARTITIONS)) == sorted(session.read)
    follower = broker.partition(4).followers[FOLLOWER]
    assert broker.clock.monotonic() == follower.last_caught_up


@pytest.mark.parametrize(
    ("seconds_each", "expected_ms"), [(0.2, 200 * PARTITIONS), (1_000.0, LAG_SECONDS * 250)]
)
def test_many_partitions_are_read_less_often_but_within_the_lag_that_is_allowed(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch, seconds_each: float, expected_ms: float
) -> None:
    monkeypatch.setattr(follower_watch, "READ_ALL_SECONDS_EACH", seconds_each)
    began = broker.clock.monotonic()
    session = Session(broker)
    passed_ms = round((broker.clock.monotonic() - began) * 1000)
    broker.advance(round(expected_ms) - passed_ms - 1)
    session.ask(max_wait_ms=0)
    assert [] == session.read
    broker.advance(1)
    session.ask(max_wait_ms=0)
    assert list(range(PARTITIONS)) == sorted(session.read)


def test_an_append_to_any_partition_ends_the_wait(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask()
    assert is_waiting(reply)
    broker.produce({4: batch(b"a")})
    assert [(4, 0, SIZE, 0)] == session.answer(reply)


def test_a_wait_without_events_ends_in_time_with_nothing(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask()
    broker.advance(500)
    assert [] == session.answer(reply)


def test_an_append_that_the_fetch_itself_brings_about_ends_its_wait(broker: DataPath) -> None:
    """Its offsets commit what somebody waits for, who writes elsewhere: transaction coordinators do."""
    session = Session(broker)
    first = session.ask()
    produced = broker.produce_request({0: batch(b"a")}, acks=-1)
    assert [(0, 0, SIZE, 0)] == session.answer(first)
    produced.add_done(lambda _: broker.produce({4: batch(b"b")}))
    assert [(4, 0, SIZE, 0), (0, 0, 0, 1)] == sorted(session.answer(session.ask({0: 1})), reverse=True)


def test_what_happened_between_two_requests_is_not_missed(broker: DataPath) -> None:
    session = Session(broker)
    first = session.ask()
    broker.produce({0: batch(b"a")})
    broker.produce({2: batch(b"b")})
    assert [(0, 0, SIZE, 0)] == session.answer(first)
    assert [(2, 0, SIZE, 0), (0, 0, 0, 1)] == session.answer(session.ask({0: 1}))


def test_records_without_room_come_with_the_next_answer_though_nobody_names_them(broker: DataPath) -> None:
    session = Session(broker)
    broker.produce({0: batch(b"a")})
    broker.produce({1: batch(b"b")})
    first = session.answer(session.ask(max_bytes=SIZE))
    assert [(0, 0, SIZE, 0)] == first
    broker.produce({0: batch(b"c")})
    assert [(1, 0, SIZE, 0), (0, 0, 0, 1)] == session.answer(session.ask({0: 1}, max_bytes=SIZE))


def test_a_high_watermark_that_moves_is_told_with_the_next_answer(broker: DataPath) -> None:
    session = Session(broker)
    broker.produce({0: batch(b"a")})
    session.ask()
    reply = session.ask({0: 1})
    assert is_waiting(reply)
    broker.advance(500)
    assert [(0, 0, 0, 1)] == session.answer(reply)


def test_a_change_of_leader_ends_the_wait(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask()
    broker.host(leadership(3, leader=3, leader_epoch=4, replicas=(1, FOLLOWER, 3)))
    assert [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)] == [each[:2] for each in session.answer(reply)]


def test_a_partition_that_is_forgotten_ends_no_wait(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask(forget=[2])
    broker.produce({2: batch(b"a")})
    assert is_waiting(reply)


def test_nobody_listens_for_a_session_that_is_gone(broker: DataPath) -> None:
    session = Session(broker)
    session.ask(max_wait_ms=0)
    purgatory = broker.purgatories["fetch"]
    assert 2 * PARTITIONS == purgatory.watched_count
    session._send({}, session_id=session.id, session_epoch=-1, max_wait_ms=0)
    assert 0 == purgatory.watched_count
    broker.produce({0: batch(b"a")})


def test_a_wait_that_is_given_up_leaves_its_news_to_the_next_request(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask({0: 0})
    assert reply.on_abandoned is not None
    reply.on_abandoned()
    broker.produce({0: batch(b"a")})
    assert not reply.is_done
    assert [(0, 0, SIZE, 0)] == session.answer(session.ask())


def test_more_than_one_byte_is_waited_for_over_all_partitions(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask(min_bytes=2 * SIZE)
    broker.produce({0: batch(b"a")})
    assert is_waiting(reply)
    broker.produce({1: batch(b"b")})
    assert [(0, 0, SIZE, 0), (1, 0, SIZE, 0)] == session.answer(reply)


def test_a_replica_that_is_deleted_ends_the_wait(broker: DataPath) -> None:
    session = Session(broker)
    reply = session.ask()
    name = TopicPartition(TOPIC, 1)
    broker.replicas.roles.apply_stop_replica(StopReplica(1, 1, [name], delete=True, leader_epochs={}))
    assert [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)] == [each[:2] for each in session.answer(reply)]
