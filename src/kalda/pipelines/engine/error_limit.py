"""Decides whether too much of a batch is bad to write any of it.

A decision on an account. Replayed dead letters do not count, because they failed before: a retry that comes
too early would otherwise stop a pipeline whose topics have no bad records.
"""

from collections.abc import Callable

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.engine.errors import BreakerOpenError
from kalda.pipelines.spec.model import PipelineSpec


def check_breaker(spec: PipelineSpec, account: BatchAccount, find_example: Callable[[], str | None]) -> None:
    """Return if the batch may be written.

    `find_example` returns one of the bad records and what is wrong with it, or None where nothing says it; it
    is called only for the error.

    Raises:
        BreakerOpenError: too large a share of the records from the pipeline's own topics is bad.
    """
    breaker, replayed = spec.breaker, spec.retry_topic
    counted = [each for each in account.ranges if each.topic != replayed]
    records, bad = sum(each.records for each in counted), sum(each.dlq - each.passed for each in counted)
    if records < breaker.records_min or bad <= records * breaker.bad_max:
        return
    example = find_example()
    shown = f", such as {example}" if example else ""
    raise BreakerOpenError(
        f"{spec.name}: {bad} of {records} records of batch {account.batch_id} are bad, more than "
        f"{breaker.bad_max:.2%}{shown}; nothing of the batch was written. Correct the format, the steps or "
        "the records, or raise breaker.bad_max, and start the pipeline again"
    )
