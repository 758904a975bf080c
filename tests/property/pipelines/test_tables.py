"""Tables against a model: whatever step of a commit or a compaction fails, each batch is there once."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import CompactPolicy, Table, open_table
from tests.unit.pipelines.tables.table_cases import (
    QUERY,
    CrashError,
    append,
    crashing,
    directory_ids,
    ids_of,
    orders,
    spec_of,
)

STEPS = ("replace", "move", "delete", "delete_directory", "open_output")


Crash = tuple[str, int, bool]
History = list[tuple[str, int, Crash | None]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return operations: name, rows, and the crash in it."""
    crash = st.none() | st.tuples(st.sampled_from(STEPS), st.integers(1, 4), st.booleans())
    operation = st.tuples(st.sampled_from(["batch", "batch", "compact", "other"]), st.integers(0, 7), crash)
    return draw(st.lists(operation, min_size=1, max_size=8))


def attempt(action: Callable[[], object], crash: Crash | None) -> None:
    """Run an action; when it crashes, nothing else of it happens."""
    if crash is None:
        action()
        return
    with crashing(*crash):
        try:
            action()
        except CrashError:
            return


@pytest.mark.parametrize("kind", [TableFormat.PARQUET, TableFormat.DELTA], ids=["parquet", "delta"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories())
def test_each_batch_is_in_the_table_once(kind: TableFormat, history: History) -> None:
    """The driver reopens the table after a crash, and repeats the batch that has no end."""
    with tempfile.TemporaryDirectory() as directory:
        spec = spec_of(Path(directory), kind, partition_by=("country",))
        done: list[int] = []
        batch_ids = {QUERY: 0, "other": 0}

        def opened() -> Table:
            return open_table(spec)

        opened().prepare_schema(orders(0, 1).schema)
        for name, rows, crash in history:
            if name == "compact":
                attempt(lambda: opened().compact(CompactPolicy(newest_kept_s=0)), crash)
            else:
                query = QUERY if name == "batch" else "other"
                batch_id, part = batch_ids[query], orders(len(done), rows)
                attempt(partial(append, opened(), batch_id, part, query_id=query), crash)
                committed = opened().committed_batch(query)
                assert committed in (
                    (batch_id,) if crash is None else (batch_id, batch_id - 1 if batch_id else None)
                )
                seen = len(done) + (rows if committed == batch_id else 0)
                assert list(range(seen)) == ids_of(opened())
                append(opened(), batch_id, part, query_id=query)
                done += range(len(done), len(done) + rows)
                batch_ids[query] += 1
            assert done == ids_of(opened())
        if kind is TableFormat.PARQUET:
            opened().committed_batch(QUERY)  # finishes what the last crash left
            assert done == directory_ids(Path(directory))
