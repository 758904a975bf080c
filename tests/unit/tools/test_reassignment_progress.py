"""How far moves are."""

import pytest

from kalda.common.types import TopicPartition
from kalda.tools.reassignment_plan import ReassignmentFile, Replica
from kalda.tools.reassignment_progress import (
    MoveStatus,
    Progress,
    ReplicaPlace,
    directory_progress,
    partition_progress,
)

FOO = TopicPartition("foo", 0)
FILE = ReassignmentFile({FOO: (1, 2)}, {Replica(FOO, 1): "/b"})


@pytest.mark.parametrize(
    ("ongoing", "current", "expected"),
    [
        ([FOO], {FOO: (1, 2)}, MoveStatus.IN_PROGRESS),
        ([], {FOO: (1, 2)}, MoveStatus.COMPLETED),
        ([], {FOO: (2, 1)}, MoveStatus.NOT_ACTIVE),
        ([], {}, MoveStatus.MISSING),
    ],
)
def test_a_partition_moves_until_it_is_where_the_file_wants_it(
    ongoing: list[TopicPartition], current: dict[TopicPartition, tuple[int, ...]], expected: MoveStatus
) -> None:
    (progress,) = partition_progress(FILE, dict.fromkeys(ongoing), current)

    assert expected is progress.status
    assert ((1, 2), current.get(FOO, ())) == (progress.target, progress.current)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (ReplicaPlace("/a", "/b"), MoveStatus.IN_PROGRESS),
        (ReplicaPlace("/b", None), MoveStatus.COMPLETED),
        (ReplicaPlace("/a", None), MoveStatus.NOT_ACTIVE),
        (ReplicaPlace(None, None), MoveStatus.MISSING),
        (None, MoveStatus.MISSING),
    ],
)
def test_a_replica_moves_until_its_directory_is_the_one_in_the_file(
    place: ReplicaPlace | None, expected: MoveStatus
) -> None:
    places = {} if place is None else {Replica(FOO, 1): place}
    (progress,) = directory_progress(FILE, places)

    assert expected is progress.status


def test_a_file_is_done_when_nothing_of_it_moves_and_failures_have_a_text() -> None:
    partitions = partition_progress(FILE, {}, {FOO: (3,)})
    directories = directory_progress(FILE, {Replica(FOO, 1): ReplicaPlace("/b", None)})
    progress = Progress(partitions, directories, others_ongoing=True)

    assert (False, True, 1) == (progress.is_own_ongoing, progress.is_ongoing, progress.done_count)
    assert [
        "partition foo-0 is not being moved and has replicas [3] instead of [1, 2]"
    ] == progress.failed_texts()
