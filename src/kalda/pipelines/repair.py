"""Rebuilds a lost checkpoint from the query's consumer group, and a lost group from the checkpoint.

The group lags behind what the target holds by one batch at most: its offsets are committed after the batch.
Where the target says how far it is (the ledger, the table's last commit), its offsets count if they are
further; both are never beyond what the target holds. So nothing is left out, and nothing is written twice
unless the target neither says how far it is nor replaces what it has.

It is not a repair of state: a query with aggregations, joins or `dropDuplicates` loses its state with its
checkpoint.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.group_offsets import Committed, OffsetStore
from kalda.spark.source.log_history import check_reincarnations

FROM_GROUP: Final = "group"
FROM_TARGET: Final = "target"


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """Where a partition is read on."""

    offset: int
    known_from: str
    """``group``, or ``target`` where the ledger or the table is further than the group."""


def restart_points(
    committed: Mapping[TopicPartition, Committed], accounted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, RestartPoint]:
    """Return where a query without a checkpoint goes on.

    Args:
        committed: What its group has committed.
        accounted: Up to where its target accounts for the partitions; nothing if it does not.

    Example: a group at 100 and a table that holds up to 150 go on at 150.
    """
    points = {each: RestartPoint(found.offset, FROM_GROUP) for each, found in committed.items()}
    for each, end in accounted.items():
        if each not in points or end > points[each].offset:
            points[each] = RestartPoint(end, FROM_TARGET)
    return dict(sorted(points.items()))


def ends_of(accounts: Iterable[RangeAccount]) -> dict[TopicPartition, int]:
    """Return the greatest end of each partition in some accounts."""
    ends: dict[TopicPartition, int] = {}
    for each in accounts:
        ends[each.topic_partition] = max(each.end, ends.get(each.topic_partition, 0))
    return ends


def last_batch(records: Iterable[LedgerRecord]) -> LedgerRecord | None:
    """Return a record of the batch that was committed last; None for an empty ledger."""
    return max(records, key=lambda each: (each.committed_ms, each.batch_id), default=None)


def rebuild_checkpoint(
    checkpoint: Checkpoint,
    points: Mapping[TopicPartition, RestartPoint],
    topic_ids: Mapping[str, UUID],
    *,
    group_id: str,
    now_ms: int,
) -> UUID:
    """Write the checkpoint; return the new query's id.

    The id is a new one: under the former id, a target would take the next batches for those that it already
    has, and leave them out. `topic_ids` are those of the topics now; see `check_topics`.

    Raises:
        CheckpointError: there is nothing to rebuild it from, or it is not lost.
    """
    if not points:
        raise CheckpointError(
            f"group {group_id} has committed no offsets, so nothing says how far the query was; start it "
            "without a checkpoint (`startingOffsets`)"
        )
    query_id = uuid.uuid4()
    offsets = {each: point.offset for each, point in points.items()}
    checkpoint.create(offsets, topic_ids, query_id=query_id, now_ms=now_ms)
    return query_id


def check_topics(
    committed: Mapping[TopicPartition, Committed], topic_ids: Mapping[str, UUID], *, group_id: str
) -> None:
    """Refuse offsets of topics that were deleted and created again since.

    Raises:
        CheckpointError: there is one.
    """
    try:
        check_reincarnations(
            {each.topic: found.topic_id for each, found in committed.items()},
            topic_ids,
            group_id=group_id,
            fail=True,
        )
    except DataLossError as error:
        raise CheckpointError(str(error)) from None


def rebuild_group(checkpoint: Checkpoint, group: OffsetStore) -> dict[TopicPartition, Committed]:
    """Commit to the group what the checkpoint says, with the ids of its topics; return the commits.

    Raises:
        CheckpointError: the checkpoint has no complete batch, or the group has members.
        ClientError: the group cannot be written.
    """
    offsets = checkpoint.committed_offsets()
    last = checkpoint.last_committed()
    topic_ids = {} if last is None else checkpoint.topic_ids(last)
    commits = {
        each: Committed(offset, topic_ids.get(each.topic, ZERO_UUID)) for each, offset in offsets.items()
    }
    failed = group.write(commits)
    for partition, error in failed.items():
        raise CheckpointError(f"{partition}: {error}")
    return commits
