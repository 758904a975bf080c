"""Checks a consumer group's partition owners and committed offsets: `OwnershipCheck` and `CommitCheck`."""

from collections.abc import Mapping
from typing import Final


class OwnershipCheck:
    """Whether two members of one generation own a partition."""

    def __init__(self) -> None:
        self._owners: Final[dict[tuple[int, int], str]] = {}

    def delivered(self, generation: int, partition: int, member: str) -> str | None:
        """Note that a member of a generation got records of a partition; return what contradicts it."""
        owner = self._owners.setdefault((generation, partition), member)
        if owner == member:
            return None
        return f"partition {partition} is {owner}'s in generation {generation}, and {member}'s"


class CommitCheck:
    """Whether committed offsets go back: a member that begins to own a partition sees every commit before.

    Commits that were answered are certain; one without an answer may have been done, now or later.
    """

    def __init__(self) -> None:
        self._committed: Final[dict[int, int]] = {}

    def committed(self, known: Mapping[int, int], offsets: Mapping[int, int]) -> list[str]:
        """Note a commit by partition that was answered; return what goes back behind `known` at its begin."""
        wrong = [
            f"partition {partition} is committed at {offset} after {known[partition]}"
            for partition, offset in offsets.items()
            if offset < known.get(partition, 0)
        ]
        for partition, offset in offsets.items():
            self._committed[partition] = max(offset, self._committed.get(partition, 0))
        return wrong

    def known(self) -> dict[int, int]:
        """Return the highest offset of each partition whose commit was answered until now."""
        return dict(self._committed)

    @staticmethod
    def read(known: Mapping[int, int], found: Mapping[int, int | None]) -> list[str]:
        """Compare what a member read with what had been committed before it began to read."""
        return [
            f"partition {partition} was committed at {known[partition]}, and {offset} is read"
            for partition, offset in found.items()
            if partition in known and (offset is None or offset < known[partition])
        ]
