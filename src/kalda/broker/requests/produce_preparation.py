"""Opens and converts produced batches on the conversion pool before they are appended.

A batch of 8 KB can hold 250 MB, and a wrapper of 0.7 MB takes 18 ms to unpack and to pack again, which would
hold the event loop. The connection handles no further request until this one is answered, so the order of its
records stays.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.records.compression import Checkpoint
from kalda.runtime.clock import Clock
from kalda.storage.conversions import ConversionOwner, Conversions
from kalda.storage.errors import HeavyBatchError, InspectionUnavailableError, LookupNeededError
from kalda.storage.log_validator import Prepared

_LOOKUPS_MAX: Final = 8
"""Rounds of lookups that one batch waits for: a usual one has all it needs after the first."""


class HeavyBatch:
    """A batch of one partition, and how it is appended once it is prepared."""

    __slots__ = ("append", "lookups", "partition", "prepared", "records")

    def __init__(self, partition: Partition, records: memoryview, append: Callable[[Prepared], None]) -> None:
        self.partition: Final = partition
        self.records: Final = records
        self.append: Final = append
        """Raises `HeavyBatchError` where the batch is to be prepared again: others appended meanwhile."""
        self.prepared = Prepared()
        self.lookups = 0


def prepare_all(
    clock: Clock,
    conversions: Conversions,
    owner: ConversionOwner,
    batches: Sequence[HeavyBatch],
    done: Callable[[Exception | None], None],
) -> None:
    """Prepare and append batches, then call `done`, always from the event loop.

    `done` gets the first exception that an append raised: a fault, as each refusal is handled by the append.
    """
    left = len(batches)
    failure: Exception | None = None

    def submit(batch: HeavyBatch) -> None:
        log = batch.partition.log
        arguments = clock.time_ms(), log.log_end_offset, batch.partition.leader_epoch

        def work(checkpoint: Checkpoint) -> None:
            batch.prepared = validator.prepare(batch.records, *arguments, checkpoint)

        validator = log.validator
        conversions.submit(owner, len(batch.records), work, partial(finish, batch))

    def finish(batch: HeavyBatch, error: BaseException | None) -> None:
        nonlocal left, failure
        if isinstance(error, Exception):
            batch.prepared.error = error
        lookup = batch.prepared.error
        if isinstance(lookup, LookupNeededError):
            if batch.lookups < _LOOKUPS_MAX:
                batch.lookups += 1
                lookup.wait(partial(submit, batch))
                return
            batch.prepared.error = InspectionUnavailableError(
                f"after {_LOOKUPS_MAX} lookups more is needed to check the batch; retry"
            )
        try:
            batch.append(batch.prepared)
        except HeavyBatchError:
            # Others appended meanwhile, or the topic's settings changed.
            submit(batch)
            return
        except Exception as fault:
            # The other batches are still under way; the request is answered after the last one.
            failure = failure or fault
        left -= 1
        if not left:
            done(failure)

    for batch in batches:
        submit(batch)
