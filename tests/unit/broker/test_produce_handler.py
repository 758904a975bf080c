"""Produce: what is appended, and which error each refusal has."""

import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kalda.broker.replicas.delayed_produce import ProduceWait
from kalda.broker.requests.api import Pending
from kalda.broker.requests.handlers.produce import handle_produce
from kalda.common.errors import ErrorCode
from kalda.events.event import EventKind
from kalda.protocol import codec
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.records.batch import iter_headers
from kalda.records.compression import Compression
from kalda.records.format_conversion import iter_any_records
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import Record, RecordBatchBuilder
from kalda.storage.conversions import (
    ConversionAbandonedError,
    ConversionOwner,
    ConversionWork,
    Done,
    InlineConversions,
)
from kalda.storage.log_config import CleanupPolicy, LogConfig, TimestampTypeConfig
from kalda.storage.unified_log import FetchIsolation
from tests.unit.broker.data_path_fakes import (
    TOPIC,
    TOPIC_ID,
    DataPath,
    HeldConversions,
    batch,
    leadership,
    records_of,
)
from tests.unit.events.kept_events import KeptEvents


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership(0), leadership(1))
    yield path
    path.close()


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_appended_at_the_end_and_answered_with_its_offset(
    broker: DataPath, version: int, acks: int
) -> None:
    first = broker.produce(batch(b"a", b"b"), version=version, acks=acks)
    second = broker.produce(batch(b"c"), version=version, acks=acks)

    assert (0, 0) == (first.error_code, first.base_offset)
    assert (0, 2) == (second.error_code, second.base_offset)
    assert -1 == second.log_append_time_ms
    assert 3 == broker.partition().log.high_watermark


def test_several_partitions_are_answered_each(broker: DataPath) -> None:
    reply = broker.produce_request({0: batch(b"a"), 5: batch(b"b"), 1: batch(b"c")})
    answers = broker.produce_response(reply).responses[0].partition_responses

    assert [(0, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, 0)] == [
        (answer.index, answer.error_code) for answer in answers
    ]
    assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == broker.errors.codes


def test_a_batch_for_a_deleted_topic_is_refused_by_its_id(broker: DataPath) -> None:
    """Under the old name there may be another topic, which must not get the records."""
    gone = uuid.uuid4()
    reply = broker.produce_request(batch(b"a"), version=13, topic_id=gone)
    (topic,) = broker.produce_response(reply, 13).responses
    assert gone == topic.topic_id
    assert [ErrorCode.UNKNOWN_TOPIC_ID] == [each.error_code for each in topic.partition_responses]
    assert 0 == broker.partition().log.log_end_offset


def test_partitions_of_a_topic_id_are_answered_under_the_id(broker: DataPath) -> None:
    reply = broker.produce_request({0: batch(b"a"), 5: batch(b"b"), 1: batch(b"c")}, version=13)
    (topic,) = broker.produce_response(reply, 13).responses
    assert TOPIC_ID == topic.topic_id
    assert [(0, 0), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, 0)] == [
        (answer.index, answer.error_code) for answer in topic.partition_responses
    ]


def test_acks_0_has_no_answer_but_the_records_are_there(broker: DataPath) -> None:
    assert broker.produce_request(batch(b"a"), acks=0) is None
    assert 1 == broker.partition().log.log_end_offset
    assert [] == broker.connection.closed


def test_an_error_with_acks_0_closes_the_connection(broker: DataPath) -> None:
    """The client has no other way to learn that its metadata is stale."""
    assert broker.produce_request(batch(b"a"), acks=0, topic="unknown") is None
    assert ["produce with acks=0 failed: UNKNOWN_TOPIC_OR_PARTITION"] == broker.connection.closed


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist_are_refused(broker: DataPath, acks: int) -> None:
    assert ErrorCode.INVALID_REQUIRED_ACKS == broker.produce(batch(b"a"), acks=acks).error_code
    assert 0 == broker.partition().log.log_end_offset


def messages(magic: int, *values: bytes, **options: Any) -> bytes:
    builder = MessageSetBuilder(magic, **options)
    for value in values:
        builder.append(b"k", value, 1_000)
    return bytes(builder.build())


def stored(broker: DataPath) -> list[Record]:
    """Return the records of the log, which has none of the older formats unless it is configured to."""
    data = broker.partition().log.read(0, 1_000_000, FetchIsolation.LOG_END).records.read()
    return [record for at, header in iter_headers(data) for record in iter_any_records(data, at, header)]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (2, 0)])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_messages_of_old_clients_are_converted_to_batches(
    broker: DataPath, version: int, magic: int, codec: Compression
) -> None:
    broker.produce(batch(b"a"))
    answer = broker.produce(messages(magic, b"b", b"c", compression=codec), version=version)
    assert (0, 1) == (answer.error_code, answer.base_offset)
    found = stored(broker)
    assert [(0, b"a"), (1, b"b"), (2, b"c")] == [(record.offset, record.value) for record in found]
    assert (1_000 if magic else -1) == found[2].timestamp
    assert 3 == broker.partition().log.log_end_offset
    assert 0 == broker.produce(batch(b"d")).error_code


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("offset", [-1, 7])
def test_offsets_of_old_uncompressed_messages_may_be_anything(
    broker: DataPath, magic: int, offset: int
) -> None:
    """Brokers always replaced them; kafkajs writes -1."""
    sent = bytearray(messages(magic, b"b") + messages(magic, b"c"))
    for position in (0, len(sent) // 2):
        sent[position : position + 8] = offset.to_bytes(8, "big", signed=True)
    answer = broker.produce(bytes(sent), version=2)
    assert (0, 0) == (answer.error_code, answer.base_offset)
    assert [(0, b"b"), (1, b"c")] == [(record.offset, record.value) for record in stored(broker)]


def test_small_messages_of_one_request_may_exceed_the_limit_of_a_batch_together(broker: DataPath) -> None:
    """The limit was one of each message; a request of an old producer held many."""
    broker.configure(max_message_bytes=300)
    assert 0 == broker.produce(messages(1, *[b"x" * 100] * 20), version=2).error_code
    assert 20 == len(stored(broker))
    answer = broker.produce(messages(1, b"x" * 300), version=2)
    assert ErrorCode.MESSAGE_TOO_LARGE == answer.error_code


def test_wrapper_with_a_damaged_message_inside_is_refused(broker: DataPath) -> None:
    inner = bytearray(messages(1, b"abc"))
    inner[-1] ^= 1
    wrapper = bytearray(messages(1, zlib.compress(inner, wbits=31)))
    wrapper[17] = Compression.GZIP
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    assert ErrorCode.CORRUPT_MESSAGE == broker.produce(bytes(wrapper), version=2).error_code
    assert 0 == broker.partition().log.log_end_offset


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_log_of_an_old_format_keeps_it_whatever_clients_send(
    broker: DataPath, magic: int, codec: Compression
) -> None:
    broker.configure(message_magic=magic)
    broker.produce(batch(b"a", b"b", compression=codec))
    broker.produce(messages(0, b"c", compression=codec), version=0)
    broker.produce(messages(1, b"d", b"e", compression=codec), version=2)
    log = broker.partition().log
    data = log.read(0, 1_000_000, FetchIsolation.LOG_END).records.read()
    assert {magic} == {header.magic for _, header in iter_headers(data)}
    assert [b"a", b"b", b"c", b"d", b"e"] == [record.value for record in stored(broker)]
    assert list(range(5)) == [record.offset for record in stored(broker)]
    assert 5 == log.log_end_offset


def test_log_of_an_old_format_has_no_place_for_idempotence(broker: DataPath) -> None:
    broker.configure(message_magic=1)
    builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0)
    builder.append(None, b"v", 1)
    answer = broker.produce(bytes(builder.build()))
    assert ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT == answer.error_code
    assert "message.format.version" in (answer.error_message or "")


def corrupt(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 0xFF])


@pytest.mark.parametrize(
    ("records", "version", "expected"),
    [
        (corrupt(batch(b"a")), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a") + batch(b"b"), 9, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (None, 9, ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], 9, ErrorCode.INVALID_RECORD),
        (batch(b"a") + bytes(20), 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a") + batch(b"b")[:16] + b"\x07" + batch(b"b")[17:30], 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:16] + b"\x01" + batch(b"a")[17:], 9, ErrorCode.INVALID_RECORD),
        (batch(b"a")[:16] + b"\x09" + batch(b"a")[17:], 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:8] + b"\x00\x00\x00\x05" + batch(b"a")[12:], 9, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", compression=Compression.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"", 0, ErrorCode.INVALID_RECORD),
        (messages(1, b"a")[:-1], 2, ErrorCode.INVALID_RECORD),
        (corrupt(messages(0, b"a")), 0, ErrorCode.CORRUPT_MESSAGE),
        (messages(0, b"a") + messages(1, b"a"), 2, ErrorCode.INVALID_RECORD),
        (messages(1, b"a"), 3, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_not_one_sound_batch_is_refused(
    broker: DataPath, records: bytes | None, version: int, expected: ErrorCode
) -> None:
    answer = broker.produce({0: records}, version=version)

    assert (expected, -1) == (ErrorCode(answer.error_code), answer.base_offset)
    assert 0 == broker.partition().log.log_end_offset


def test_zstd_is_accepted_from_version_7(broker: DataPath) -> None:
    assert 0 == broker.produce(batch(b"a", compression=Compression.ZSTD), version=7).error_code


def test_an_incomplete_second_batch_is_cut_off(broker: DataPath) -> None:
    assert 0 == broker.produce(batch(b"a") + batch(b"b")[:30]).error_code
    assert len(batch(b"a")) == broker.partition().log.size


def test_a_batch_above_the_limit_is_too_large_and_says_why(broker: DataPath) -> None:
    broker.configure(max_message_bytes=100)
    answer = broker.produce(batch(b"x" * 200))
    assert ErrorCode.MESSAGE_TOO_LARGE == answer.error_code
    assert "max.message.bytes=100" in (answer.error_message or "")


@pytest.mark.parametrize("version", [3, 7, 8, 9, 11, 12])
def test_a_compacted_topic_names_the_records_without_keys(tmp_path: Path, version: int) -> None:
    """KIP-467: a producer then tells which of its records are to blame for the batch."""
    path = DataPath(tmp_path, config=LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})))
    path.host(leadership())
    answer = path.produce(_with_keys(b"k", None, b"k", None), version=version)
    path.close()
    assert ErrorCode.INVALID_RECORD == answer.error_code
    named = [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]
    reason = "a compacted topic takes no record without a key"
    assert ([(1, reason), (3, reason)] if version >= 8 else []) == named


def _with_keys(*keys: bytes | None) -> bytes:
    builder = RecordBatchBuilder()
    for key in keys:
        builder.append(timestamp=1, key=key, value=b"v")
    return bytes(builder.build())


def test_records_with_refused_times_are_named(broker: DataPath) -> None:
    now = broker.clock.time_ms()
    broker.configure(message_timestamp_before_max_ms=10)
    builder = RecordBatchBuilder()
    for timestamp in (now, now - 11, now - 10):
        builder.append(timestamp=timestamp, key=None, value=b"v")
    answer = broker.produce(bytes(builder.build()))
    assert ErrorCode.INVALID_TIMESTAMP == answer.error_code
    assert [1] == [error.batch_index for error in answer.record_errors]


def test_log_start_offset_comes_with_a_refusal_by_the_log(broker: DataPath) -> None:
    """As in Kafka, which leaves it out where bytes are damaged or the request itself is wrong."""
    for _ in range(3):
        broker.produce(batch(b"a"))
    broker.partition().log.delete_records_before(2)
    assert 2 == broker.produce(idempotent(0)).log_start_offset
    gap = broker.produce(idempotent(5))
    assert (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2) == (gap.error_code, gap.log_start_offset)
    assert -1 == broker.produce(corrupt(batch(b"a"))).log_start_offset
    assert -1 == broker.produce(b"").log_start_offset


def test_append_time_is_answered_where_the_topic_stamps_it(broker: DataPath) -> None:
    broker.configure(message_timestamp_type=TimestampTypeConfig.LOG_APPEND_TIME)
    assert broker.clock.time_ms() == broker.produce(batch(b"a")).log_append_time_ms


def idempotent(sequence: int, epoch: int = 0) -> bytes:
    return batch(b"a", producer_id=9, producer_epoch=epoch, base_sequence=sequence)


def test_a_duplicate_is_answered_with_the_first_offset_and_not_written_again(broker: DataPath) -> None:
    broker.produce(batch(b"before"))
    assert 1 == broker.produce(idempotent(0)).base_offset
    broker.produce(idempotent(1))

    again = broker.produce(idempotent(0))

    assert (0, 1) == (again.error_code, again.base_offset)
    assert 3 == broker.partition().log.log_end_offset


def test_a_gap_in_the_sequence_and_an_old_epoch_are_refused(broker: DataPath) -> None:
    broker.produce(idempotent(0, epoch=1))
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER == broker.produce(idempotent(2, epoch=1)).error_code
    assert ErrorCode.INVALID_PRODUCER_EPOCH == broker.produce(idempotent(1, epoch=0)).error_code


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"is_transactional": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"is_control": True}, ErrorCode.INVALID_RECORD),
    ],
)
def test_transactions_and_control_records_are_refused(
    broker: DataPath, settings: dict[str, Any], expected: ErrorCode
) -> None:
    records = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0, **settings)
    assert expected == broker.produce(records).error_code


def test_internal_topics_are_written_by_the_admin_client_only(broker: DataPath) -> None:
    broker.host(leadership(topic="__consumer_offsets", topic_id=uuid.UUID(int=8)))
    internal: dict[str, Any] = {"topic": "__consumer_offsets"}
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == broker.produce(batch(b"a"), **internal).error_code
    assert 0 == broker.produce(batch(b"a"), client_id="__admin_client", **internal).error_code


def test_no_client_writes_the_history(broker: DataPath) -> None:
    """Any client can call itself the admin client, and the history says who changed what."""
    broker.host(leadership(topic="__cluster_history", topic_id=uuid.UUID(int=9)))
    outcome = broker.produce(batch(b"a"), client_id="__admin_client", topic="__cluster_history")
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == outcome.error_code


def test_who_does_not_lead_names_the_leader_from_version_10(broker: DataPath) -> None:
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(2, 1)))

    response = broker.produce_response(broker.produce_request(batch(b"a"), version=10), 10)

    answer = response.responses[0].partition_responses[0]
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == answer.error_code
    assert (2, 4) == (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    assert [(2, "host2", 9092)] == [(n.node_id, n.host, n.port) for n in response.node_endpoints]


def test_acks_all_waits_for_the_in_sync_replicas(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    reply = broker.produce_request(batch(b"a"), acks=-1)
    assert isinstance(reply, Pending)
    assert not reply.is_done

    broker.fetch({0: 1}, replica_id=2, current_leader_epoch=4)

    assert 0 == broker.produce_response(reply).responses[0].partition_responses[0].base_offset
    assert 1 == broker.partition().log.high_watermark


def test_acks_1_does_not_wait(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    assert 0 == broker.produce(batch(b"a"), acks=1).error_code
    assert 0 == broker.partition().log.high_watermark


def test_acks_all_times_out_without_the_replicas(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    reply = broker.produce_request(batch(b"a"), acks=-1, timeout_ms=500)

    broker.advance(600)

    answer = broker.produce_response(reply).responses[0].partition_responses[0]
    assert ErrorCode.REQUEST_TIMED_OUT == answer.error_code


def test_acks_all_ends_when_leadership_is_lost(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    reply = broker.produce_request(batch(b"a"), acks=-1)

    broker.host(leadership(leader=2, leader_epoch=5, replicas=(1, 2)))

    answer = broker.produce_response(reply).responses[0].partition_responses[0]
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == answer.error_code


def test_acks_all_waits_on_while_the_leader_stays_in_a_new_epoch(broker: DataPath) -> None:
    """A broker that dies costs its other leaders an epoch, not their logs: nothing is to be sent again."""
    broker.host(leadership(leader_epoch=4, replicas=(1, 2, 3)))
    reply = broker.produce_request(batch(b"a"), acks=-1)
    broker.fetch({0: 1}, replica_id=2, current_leader_epoch=4)

    broker.host(leadership(leader_epoch=5, replicas=(1, 2, 3), isr=(1, 2)))

    answer = broker.produce_response(reply).responses[0].partition_responses[0]
    assert (ErrorCode.NONE, 0) == (answer.error_code, answer.base_offset)


def test_acks_all_does_not_outlive_a_time_as_follower(broker: DataPath) -> None:
    """Whoever led meanwhile may have cut the records off."""
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    partition = broker.partition()
    broker.produce_request(batch(b"a"), acks=-1)
    wait = ProduceWait(partition, 1)
    partition.become_follower(leadership(leader=2, leader_epoch=5, replicas=(1, 2)))
    partition.become_leader(leadership(leader_epoch=6, replicas=(1, 2)))

    assert wait.check()
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == wait.code


def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(broker: DataPath) -> None:
    broker.configure(min_insync_replicas=2)
    broker.host(leadership(leader_epoch=4, replicas=(1, 2), isr=(1,)))
    assert ErrorCode.NOT_ENOUGH_REPLICAS == broker.produce(batch(b"a"), acks=-1).error_code
    assert 0 == broker.partition().log.log_end_offset
    assert 0 == broker.produce(batch(b"a"), acks=1).error_code


def test_refusals_that_last_are_events_with_the_client(broker: DataPath) -> None:
    """Only the producer sees them otherwise, and it may swallow the message."""
    kept = broker.logs.resources.events = KeptEvents()
    broker.configure(min_insync_replicas=2, max_message_bytes=100)
    broker.host(leadership(leader_epoch=4, replicas=(1, 2), isr=(1,)))
    broker.produce(batch(b"a"), acks=-1)
    broker.produce(batch(b"x" * 200), acks=1)
    broker.produce({7: batch(b"a")}, acks=1)

    subject = {"topic": TOPIC, "partition": 0, "client": "test", "user": "alice"}
    assert [subject, subject] == [event.subject for event in kept.events]
    assert [EventKind.RECORDS_REFUSED] * 2 == [event.kind for event in kept.events]
    assert ["NOT_ENOUGH_REPLICAS", "MESSAGE_TOO_LARGE"] == [event.text("reason") for event in kept.events]
    assert "min.insync.replicas=2" in kept.events[0].text("text")
    assert "max.message.bytes=100" in kept.events[1].text("text")


def test_batch_that_waits_for_the_one_before_it_is_no_event(broker: DataPath) -> None:
    """A producer that keeps several requests in flight sends it again at once."""
    kept = broker.logs.resources.events = KeptEvents()
    producer = {"producer_id": 7, "producer_epoch": 0}
    broker.produce(batch(b"a", base_sequence=0, **producer))
    broker.produce(batch(b"c", base_sequence=2, **producer))

    assert [] == kept.of_kind(EventKind.RECORDS_REFUSED)


def test_retry_of_an_appended_batch_is_not_told_that_it_was_not_appended(broker: DataPath) -> None:
    """The producer would put its records into another batch, whose sequence numbers cannot fit any more."""
    broker.configure(min_insync_replicas=2)
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    producer = {"producer_id": 7, "producer_epoch": 0}
    first = batch(b"a", b"b", base_sequence=0, **producer)
    broker.produce_request(first, acks=-1)
    broker.host(leadership(leader_epoch=5, replicas=(1, 2), isr=(1,)))
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert code == broker.produce(first, acks=-1).error_code
    following = batch(b"c", base_sequence=2, **producer)
    assert ErrorCode.NOT_ENOUGH_REPLICAS == broker.produce(following, acks=-1).error_code
    assert 2 == broker.partition().log.log_end_offset


def test_one_replica_is_enough_whatever_min_insync_replicas_says(broker: DataPath) -> None:
    """The setting never asks for more replicas than the partition has."""
    broker.configure(min_insync_replicas=2)
    assert 0 == broker.produce(batch(b"a"), acks=-1).error_code


def test_a_fetch_that_waits_is_answered_by_the_append(broker: DataPath) -> None:
    waiting = broker.fetch_request(max_wait_ms=500)
    assert not waiting.is_done
    broker.produce(batch(b"a"))
    data = broker.fetch_response(waiting).responses[0].partitions[0]
    assert batch(b"a")[61:] == records_of(data)[61:]
    assert TOPIC == broker.fetch_response(waiting).responses[0].topic


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_large_compressed_messages_are_unpacked_in_the_background(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """The connection waits meanwhile: the next request must not be appended before this one."""
    conversions = HeldConversions()
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    random = Random(1)
    values = [random.randbytes(100) for _ in range(100)]
    packed = messages(1, *values, compression=Compression.GZIP)
    broken = packed[:-1] + bytes((packed[-1] ^ 1,))
    small = messages(1, b"a", compression=Compression.GZIP)
    reply = broker.produce_request({0: packed, 1: broken}, version=2, acks=acks)

    assert (False, 1, []) == (reply.is_done, broker.connection.holds, stored(broker))
    conversions.run()
    assert values == [each.value for each in stored(broker)]
    if acks:
        (answers,) = broker.produce_response(reply.value, 2).responses
        codes = [each.error_code for each in answers.partition_responses]
        assert [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE] == codes
    else:
        assert (None, 1) == (reply.value, len(broker.connection.closed))
    broker.produce(small, version=2)
    assert (1, 101) == (broker.connection.holds, len(stored(broker)))


def bomb(codec: Compression = Compression.ZSTD, size: int = 1 << 20) -> bytes:
    """Return a batch of some hundred bytes that holds many."""
    builder = RecordBatchBuilder(compression=codec)
    builder.append(b"k", bytes(size), 1_000)
    return bytes(builder.build())


@pytest.mark.parametrize(
    "settings", [{"cleanup_policy": frozenset({CleanupPolicy.COMPACT})}, {"compression_type": "gzip"}]
)
def test_batch_that_holds_much_is_opened_in_the_background(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """However small it is; the others of its request are appended at once."""
    broker.configure(**settings)
    conversions = HeldConversions()
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    assert len(bomb()) < 200
    for records in (bomb(), {0: bomb(), 1: batch(b"small")}):
        end = broker.partition().log.log_end_offset
        reply = broker.produce_request(records)
        assert (False, end) == (reply.is_done, broker.partition().log.log_end_offset)
        conversions.run()
        (topic,) = broker.produce_response(reply.value).responses
        assert {0} == {each.error_code for each in topic.partition_responses}
        assert [end, 0][: len(topic.partition_responses)] == [
            each.base_offset for each in topic.partition_responses
        ]
    assert (2, 1) == (broker.connection.holds, broker.partition(1).log.log_end_offset)
    assert 2 == broker.partition().topic_metrics.produces - 1


def test_large_plain_batch_of_a_compacted_topic_is_checked_in_the_background(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.configure(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    conversions = HeldConversions()
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    reply = broker.produce_request(bomb(Compression.NONE, 500_000))
    assert not reply.is_done
    conversions.run()
    assert [500_000] == [len(each.value or b"") for each in stored(broker)]


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_converted_for_an_old_log_follows_what_came_meanwhile(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch, magic: int
) -> None:
    """The old formats contain offsets, so the records are converted once more."""
    broker.configure(message_magic=magic)
    conversions = HeldConversions()
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    reply = broker.produce_request(
        messages(magic, bytes(100_000), b"", compression=Compression.GZIP), version=2
    )
    broker.produce(batch(b"meanwhile"))
    conversions.run()
    assert not reply.is_done
    conversions.run()
    assert [0, 1, 2] == [record.offset for record in stored(broker)]
    (topic,) = broker.produce_response(reply.value, 2).responses
    assert (0, 1) == (topic.partition_responses[0].error_code, topic.partition_responses[0].base_offset)


def test_partition_that_is_named_twice_is_refused(broker: DataPath) -> None:
    """One answer for a partition says nothing of two batches. Other partitions are not affected."""
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[PartitionProduceData(index=index, records=batch(b"a")) for index in indexes],
            )
            for indexes in ([0, 1], [0])
        ],
    )
    frame = memoryview(bytearray(codec.encode(request, 9)))
    reply = handle_produce(broker.produce_parts, broker.context(9), frame, 0)
    answers = [
        (answer.index, answer.error_code)
        for topic in broker.produce_response(reply).responses
        for answer in topic.partition_responses
    ]
    assert [(0, ErrorCode.INVALID_REQUEST), (1, 0), (0, ErrorCode.INVALID_REQUEST)] == answers
    assert (0, 1) == (broker.partition(0).log.log_end_offset, broker.partition(1).log.log_end_offset)


def test_batches_that_wait_to_be_opened_are_bounded(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a copy of what a client sent. The producer sends the batch again."""
    broker.configure(compression_type="gzip")
    conversions = HeldConversions()
    monkeypatch.setattr(conversions, "has_room", lambda size: False)
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    assert ErrorCode.NOT_ENOUGH_REPLICAS == broker.produce(bomb()).error_code


def test_batch_whose_conversion_is_abandoned_is_refused(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker shuts down: clients look for another leader."""
    broker.configure(compression_type="gzip")

    class Abandoning(InlineConversions):
        def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
            done(ConversionAbandonedError("the broker shuts down"))

    monkeypatch.setattr(broker.logs.resources, "conversions", Abandoning())
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == broker.produce(bomb()).error_code
    assert [] == stored(broker)
