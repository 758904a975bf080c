"""Compares what a group has committed for a topic with what a test expects; pure functions."""

from collections.abc import Mapping, Sequence

from kalda.common.log_text import counted
from kalda.testing.record_matching import Record


def unmet_offsets(
    committed: Mapping[int, int],
    records: Sequence[Record],
    offsets: Mapping[int, int] | None,
    number: int | None,
) -> list[str]:
    """Return why committed offsets are not as expected, a line for each partition; nothing if they are.

    Args:
        committed: The committed offset by partition; a partition without one is missing.
        records: All records of the topic.
        offsets: The expected offset by partition, or None.
        number: How many records must be behind the group, or None. Where neither is given, all of them.
    """
    if offsets is not None:
        return [
            f"partition {partition}: committed {committed.get(partition, 'nothing')}, expected {offset}"
            for partition, offset in sorted(offsets.items())
            if committed.get(partition) != offset
        ]
    done: dict[int, int] = {}
    left: dict[int, int] = {}
    for record in records:
        side = done if record.offset < committed.get(record.partition, 0) else left
        side[record.partition] = side.get(record.partition, 0) + 1
    if number is None:
        return [
            f"partition {partition}: committed {committed.get(partition, 'nothing')}, "
            f"{counted(left[partition], 'record')} behind it"
            for partition in sorted(left)
        ]
    if sum(done.values()) == number:
        return []
    return [
        f"{counted(sum(done.values()), 'record')} before the committed offsets, expected {number}",
        *(
            f"partition {partition}: committed {committed.get(partition, 'nothing')}, "
            f"{counted(done.get(partition, 0), 'record')} before and {left.get(partition, 0)} behind it"
            for partition in sorted({*done, *left, *committed})
        ),
    ]
