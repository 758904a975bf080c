"""When a batch has too many bad records to be written."""

from pathlib import Path

import pytest

from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.engine.error_limit import check_breaker
from kalda.pipelines.engine.errors import BreakerOpenError
from kalda.pipelines.spec.model import PipelineSpec
from kalda.pipelines.spec.parser import parse_pipeline_file


def spec() -> PipelineSpec:
    text = """
name: shop
storage: state
pipelines:
  - name: bronze
    from: {topic: orders}
    to: {table: lake.orders}
    breaker: {bad_max: 10%, records_min: 50}
"""
    return parse_pipeline_file(text, "p.yml", directory=Path("/"), variables={}).pipelines[0]


def account(*ranges: tuple[str, int, int]) -> BatchAccount:
    """Return the account of topics with as many records, so many of them bad."""
    made = (RangeAccount(name, 0, 0, count, count, count - bad, bad) for name, count, bad in ranges)
    return BatchAccount("query", 7, tuple(sorted(made, key=lambda each: each.place)))


@pytest.mark.parametrize(
    "ranges",
    [
        (("orders", 100, 10),),
        (("orders", 49, 49),),
        (("orders", 100, 0), ("bronze.dlq.retry", 300, 300)),
        (("bronze.dlq.retry", 300, 300),),
    ],
)
def test_few_bad_records_and_replayed_letters_pass(ranges: tuple[tuple[str, int, int], ...]) -> None:
    check_breaker(spec(), account(*ranges), lambda: pytest.fail("no record needs to be found"))


@pytest.mark.parametrize(("example", "shown"), [(None, ""), ("orders-0 at offset 3: x", ", such as .* 3: x")])
def test_many_bad_records_stop_the_pipeline(example: str | None, shown: str) -> None:
    message = rf"bronze: 11 of 100 records of batch 7 are bad, more than 10.00%{shown}; nothing of the"
    made = account(("orders", 60, 0), ("payments", 40, 11), ("bronze.dlq.retry", 900, 0))
    with pytest.raises(BreakerOpenError, match=message):
        check_breaker(spec(), made, lambda: example)
