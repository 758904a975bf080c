"""Fetch: limits, waiting, sessions, fencing, and what old versions are told."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.requests.api import Pending
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import StopReplica
from kalda.protocol.messages.fetch import ForgottenTopic, PartitionData
from kalda.records.batch import iter_headers
from kalda.records.compression import Compression
from kalda.records.format_conversion import iter_any_records
from kalda.records.record import iter_records
from tests.unit.broker.data_path_fakes import TOPIC_ID, DataPath, batch, leadership, records_of


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership(0), leadership(1))
    yield path
    path.close()


def size(*partitions: PartitionData) -> int:
    return sum(len(records_of(each)) for each in partitions)


def values(partition: PartitionData) -> list[bytes | None]:
    records = records_of(partition)
    found: list[bytes | None] = []
    position = 0
    while position < len(records):
        found.extend(
            None if record.value is None else bytes(record.value)
            for record in iter_records(records, position)
        )
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return found


@pytest.mark.parametrize("version", range(4, 18))
def test_records_are_read_from_the_offset(broker: DataPath, version: int) -> None:
    broker.produce(batch(b"a", b"b"))
    broker.produce(batch(b"c"))

    (topic,) = broker.fetch({0: 2}, version=version).responses

    data = topic.partitions[0]
    assert [b"c"] == values(data)
    assert (0, 3) == (data.error_code, data.high_watermark)


def test_an_offset_inside_a_batch_gives_the_whole_batch(broker: DataPath) -> None:
    """Clients skip what lies below the offset that they asked for."""
    broker.produce(batch(b"a", b"b", b"c"))
    assert [b"a", b"b", b"c"] == values(broker.fetch({0: 1}).responses[0].partitions[0])


def test_the_first_batch_comes_whole_however_small_the_limits(broker: DataPath) -> None:
    for index in (0, 1):
        broker.produce({index: batch(b"x" * 500)})

    (topic,) = broker.fetch({0: 0, 1: 0}, max_bytes=1, partition_max_bytes=1).responses

    assert [1, 0] == [len(values(each)) for each in topic.partitions]


def test_the_limit_of_the_response_holds_over_partitions(broker: DataPath) -> None:
    one = len(batch(b"x" * 500))
    for index in (0, 1):
        for _ in range(4):
            broker.produce({index: batch(b"x" * 500)})

    (topic,) = broker.fetch({0: 0, 1: 0}, max_bytes=6 * one).responses

    assert [4 * one, 2 * one] == [size(each) for each in topic.partitions]


def test_nothing_new_waits_and_is_answered_when_time_is_over(broker: DataPath) -> None:
    reply = broker.fetch_request(max_wait_ms=300)
    broker.advance(200)
    assert not reply.is_done
    broker.advance(200)
    assert [] == values(broker.fetch_response(reply).responses[0].partitions[0])


def test_min_bytes_are_waited_for(broker: DataPath) -> None:
    one = len(batch(b"a"))
    reply = broker.fetch_request({0: 0, 1: 0}, max_wait_ms=300, min_bytes=2 * one)
    broker.produce({1: batch(b"a")})
    assert not reply.is_done
    broker.produce({0: batch(b"a")})
    assert 2 * one == size(*broker.fetch_response(reply).responses[0].partitions)


def test_a_peer_that_is_gone_leaves_the_purgatory(broker: DataPath) -> None:
    reply = broker.fetch_request(max_wait_ms=300)
    assert isinstance(reply, Pending)
    reply.abandon()
    assert 0 == len(broker.purgatories["fetch"])
    broker.produce(batch(b"a"))
    assert not reply.is_done


def test_a_fetch_that_waits_learns_that_the_partition_went_away(broker: DataPath) -> None:
    reply = broker.fetch_request(max_wait_ms=300)
    partition = TopicPartition("orders", 0)
    broker.replicas.roles.apply_stop_replica(StopReplica(1, 1, [partition], True, {partition: -2}))
    code = broker.fetch_response(reply).responses[0].partitions[0].error_code
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == code


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"offsets": {0: 5}}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offsets": {9: 0}}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"version": 13, "topic_id": uuid.UUID(int=99)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"version": 13, "offsets": {9: 0}}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_errors_are_told_by_partition_and_do_not_wait(
    broker: DataPath, options: dict[str, object], expected: ErrorCode
) -> None:
    (topic,) = broker.fetch(**{"max_wait_ms": 500, **options}).responses  # type: ignore[arg-type]  # mixed
    assert expected == topic.partitions[0].error_code
    assert [expected] == broker.errors.codes


def test_the_leader_is_named_from_version_16_only(broker: DataPath) -> None:
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    new = broker.fetch(version=16, current_leader_epoch=3)
    old = broker.fetch(version=15, current_leader_epoch=3)
    assert (2, 4) == (
        new.responses[0].partitions[0].current_leader.leader_id,
        new.responses[0].partitions[0].current_leader.leader_epoch,
    )
    assert [2] == [node.node_id for node in new.node_endpoints]
    assert -1 == old.responses[0].partitions[0].current_leader.leader_id


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_versions_before_record_batches_get_messages(broker: DataPath, version: int, magic: int) -> None:
    broker.produce(batch(b"a", b"b"))
    broker.produce(batch(b"c", b"d", compression=Compression.GZIP))
    for offset, expected in ((1, [1, 2, 3]), (3, [2, 3])):
        data = records_of(broker.fetch({0: offset}, version=version).responses[0].partitions[0])
        found = list(iter_headers(data))
        assert {magic} == {header.magic for _, header in found}
        # An old client skips what precedes its offset inside a wrapper, and nothing else.
        assert expected == [r.offset for at, header in found for r in iter_any_records(data, at, header)]


@pytest.mark.parametrize("version", [0, 3])
def test_conversion_may_be_switched_off(broker: DataPath, version: int) -> None:
    broker.configure(message_downconversion_enable=False)
    broker.produce(batch(b"a"))
    data = broker.fetch(version=version).responses[0].partitions[0]
    assert ErrorCode.UNSUPPORTED_VERSION == data.error_code
    assert 0 == size(data)


def test_records_that_cannot_be_converted_are_an_error_only_where_they_are_first(broker: DataPath) -> None:
    broker.produce(batch(b"a"))
    broker.produce(batch(b"b", compression=Compression.ZSTD))
    data = records_of(broker.fetch(version=3).responses[0].partitions[0])
    assert [0] == [header.base_offset for _, header in iter_headers(data)]
    refused = broker.fetch({0: 1}, version=3).responses[0].partitions[0]
    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE == refused.error_code


def test_response_to_an_old_client_is_filled_up_with_what_it_ignores(broker: DataPath) -> None:
    """The size of the records is sent before they are converted; less may come out of them."""
    broker.produce({0: batch(*[b"x" * 100] * 5000, compression=Compression.NONE), 1: batch(b"b")})
    broker.produce(batch(*[b"y" * 5000] * 500, compression=Compression.SNAPPY))
    first, second = broker.fetch({0: 0, 1: 0}, version=2).responses[0].partitions
    data = records_of(first)
    assert broker.partition().log.size <= len(data)
    offsets = [r.offset for at, header in iter_headers(data) for r in iter_any_records(data, at, header)]
    assert list(range(len(offsets))) == offsets
    other = records_of(second)
    assert [b"b"] == [
        r.value for at, header in iter_headers(other) for r in iter_any_records(other, at, header)
    ]


@pytest.mark.parametrize("version", [0, 2])
def test_each_partition_of_an_old_fetch_has_a_batch_however_small_the_limits(
    broker: DataPath, version: int
) -> None:
    broker.produce({0: batch(b"x" * 500), 1: batch(b"y" * 500)})
    (topic,) = broker.fetch({0: 0, 1: 0}, version=version, partition_max_bytes=1).responses
    assert all(size(each) > 500 for each in topic.partitions)


def test_a_zstd_topic_is_refused_below_version_10(broker: DataPath) -> None:
    broker.configure(compression_type="zstd")
    assert [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0] == [
        broker.fetch(version=version).responses[0].partitions[0].error_code for version in (9, 10)
    ]


def test_followers_see_the_end_of_the_log_and_move_the_high_watermark(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    broker.produce(batch(b"a"))

    assert 0 == size(*broker.fetch().responses[0].partitions)
    assert [b"a"] == values(broker.fetch(replica_id=2).responses[0].partitions[0])
    assert 0 == broker.partition().log.high_watermark
    broker.fetch({0: 1}, replica_id=2)
    assert 1 == broker.partition().log.high_watermark


def test_a_follower_is_told_where_its_log_parts(broker: DataPath) -> None:
    """Epoch 3 ends at 1 here; a follower that says it has epoch 3 up to 5 must truncate to 1."""
    broker.host(leadership(leader_epoch=3, replicas=(1, 2)))
    broker.produce(batch(b"a"))
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    broker.produce(batch(b"b"))

    data = broker.fetch({0: 5}, version=12, replica_id=2, last_fetched_epoch=3).responses[0].partitions[0]

    assert (3, 1) == (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    assert 0 == size(data)


# Sessions.


def test_a_session_answers_only_what_changed(broker: DataPath) -> None:
    full = broker.fetch({0: 0, 1: 0}, session_epoch=0)
    assert full.session_id != 0
    assert [0, 1] == [each.partition_index for each in full.responses[0].partitions]

    broker.produce({1: batch(b"a")})
    changed = broker.fetch({}, session_id=full.session_id, session_epoch=1)
    assert [1] == [each.partition_index for each in changed.responses[0].partitions]

    unchanged = broker.fetch({1: 1}, session_id=full.session_id, session_epoch=2)
    assert (0, []) == (unchanged.error_code, unchanged.responses)


def test_an_empty_incremental_fetch_waits_for_all_its_partitions(broker: DataPath) -> None:
    session = broker.fetch({0: 0, 1: 0}, session_epoch=0).session_id
    reply = broker.fetch_request({}, session_id=session, session_epoch=1, max_wait_ms=500)
    broker.produce({1: batch(b"a")})
    assert [1] == [each.partition_index for each in broker.fetch_response(reply).responses[0].partitions]


@pytest.mark.parametrize("version", [12, 13])
def test_forgotten_partitions_are_read_no_more(broker: DataPath, version: int) -> None:
    session = broker.fetch({0: 0, 1: 0}, session_epoch=0, version=version).session_id
    broker.produce({0: batch(b"a")})
    forgotten = ForgottenTopic(
        **({"topic": "orders"} if version < 13 else {"topic_id": TOPIC_ID}), partitions=[0]
    )
    response = broker.fetch({}, session_id=session, session_epoch=1, version=version, forgotten=[forgotten])
    assert [] == response.responses


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "expected"),
    [
        (4242, 1, 11, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, 11, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_does_not_fit_is_an_error_at_the_top(
    broker: DataPath, session_id: int | None, epoch: int, version: int, expected: ErrorCode
) -> None:
    opened = broker.fetch(session_epoch=0, version=11).session_id
    response = broker.fetch(
        {}, session_id=session_id or opened, session_epoch=epoch, version=version, max_wait_ms=500
    )
    assert expected == response.error_code
    assert [] == response.responses


def test_fetch_limits_are_capped_by_the_broker(broker: DataPath) -> None:
    one = len(batch(b"x" * 500))
    for _ in range(3):
        broker.produce(batch(b"x" * 500))
    broker.settings.fetch_max_bytes = 2 * one
    assert 2 * one == size(*broker.fetch().responses[0].partitions)


@pytest.mark.parametrize("version", [4, 11])
def test_senseless_limits_do_no_harm(broker: DataPath, version: int) -> None:
    """The promise of one batch holds even then; nothing raises."""
    broker.produce(batch(b"a"))
    broker.produce(batch(b"b"))
    data = broker.fetch(version=version, max_bytes=-1, partition_max_bytes=-5, min_bytes=-3, max_wait_ms=-7)
    assert [b"a"] == values(data.responses[0].partitions[0])


def test_thousands_of_waiting_fetches_cost_an_append_elsewhere_nothing(broker: DataPath) -> None:
    """An append asks only those that wait for its partition."""
    waiting = [broker.fetch_request({0: 0}, max_wait_ms=1000) for _ in range(1000)]
    calls = 0
    original = broker.replicas.read

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return original(*arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    broker.replicas.read = counted  # type: ignore[method-assign, assignment]  # a spy
    broker.produce({1: batch(b"a")})
    assert 0 == calls
    broker.produce({0: batch(b"a")})
    assert 1000 == calls
    assert all(reply.is_done for reply in waiting)
