"""What dead letters and the stored state of a share group say about records that it gave up."""

from collections.abc import Mapping
from uuid import UUID

from kalda.clients.values import ConsumerRecord
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.share.delivery_state import PartitionState, RecordState, StateRange
from kalda.coordinator.share.share_records import (
    SharePartitionKey,
    Snapshot,
    Update,
    snapshot_record,
    update_record,
)
from kalda.records.batch import TimestampType
from kalda.simulation.checks.deliveries import Place
from kalda.simulation.checks.share_reasons import Letter, Reasons, read_letter, reasons_of

KEY = SharePartitionKey("g", UUID(int=1), 2)


def stored(*records: CoordinatorRecord, first: int = 0, group: str = "g") -> Reasons:
    found: Mapping[Place, ConsumerRecord[bytes | None, bytes | None]] = {
        (0, first + number): record(each.key, each.value) for number, each in enumerate(records)
    }
    return reasons_of(found, group)


def record(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()
) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, key, value, headers, -1, -1, None)


def update(*ranges: StateRange) -> CoordinatorRecord:
    return update_record(KEY, Update(0, 0, -1, -1, ranges))


def test_a_record_at_the_limit_was_stored_one_delivery_before() -> None:
    reasons = stored(update(StateRange(3, 4, RecordState.AVAILABLE, 2)))

    assert [True, True, False] == [reasons.is_at_limit((2, offset), 3) for offset in (3, 4, 5)]
    assert not reasons.is_at_limit((2, 3), 4)


def test_a_record_that_waited_for_its_letter_is_dead_and_snapshots_count() -> None:
    state = PartitionState(0, 0, ranges=(StateRange(3, 3, RecordState.ARCHIVING, 1),))
    reasons = stored(snapshot_record(KEY, Snapshot(1, state, 0, 0)))

    assert [True, False] == [reasons.is_dead((2, offset)) for offset in (3, 4)]


def test_what_was_deleted_from_the_topic_is_missing() -> None:
    assert stored(update()).is_complete
    assert not stored(update(), first=4).is_complete


def test_other_groups_do_not_count() -> None:
    reasons = stored(update(StateRange(3, 3, RecordState.ARCHIVING, 2)), group="other")

    assert not reasons.is_dead((2, 3))


def test_a_letter_names_its_origin_and_its_reason() -> None:
    headers = {
        "topic": b"jobs",
        "partition": b"2",
        "offset": b"17",
        "group": b"g",
        "delivery.count": b"3",
    }
    for message, is_rejected, reason in (
        ("Offset rejected by client.", True, ""),
        ("Offset delivery count exceeded the threshold.", False, ""),
        ("bad 4", True, "bad 4"),
    ):
        said = {**headers, "message": message.encode()}
        letter = read_letter(record(b"k", b"v", tuple((f"__dlq.errors.{n}", v) for n, v in said.items())))
        assert Letter("jobs", "g", (2, 17), 3, is_rejected, reason, b"k", b"v") == letter
