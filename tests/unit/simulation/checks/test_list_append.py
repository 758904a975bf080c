"""Elle's anomalies in hand-made histories."""

from collections.abc import Mapping, Sequence

from kalda.simulation.checks.list_append import Fate, Transaction, anomalies

Append = tuple[int, str]


def transaction(
    name: str,
    *appends: Append,
    fate: Fate = Fate.COMMITTED,
    reads: Mapping[int, Sequence[str]] | None = None,
) -> Transaction:
    return Transaction(name, fate, appends, reads or {})


def names(transactions: Sequence[Transaction], lists: Mapping[int, Sequence[str]]) -> list[str]:
    return [each.name for each in anomalies(transactions, lists)]


def test_transactions_one_after_the_other_show_nothing() -> None:
    history = [
        transaction("t1", (0, "a"), (1, "b"), reads={0: []}),
        transaction("t2", (0, "c"), reads={0: ["a"]}),
        transaction("t3", (0, "x"), fate=Fate.ABORTED),
        transaction("t4", (0, "d"), (1, "e"), fate=Fate.UNKNOWN),
        transaction("t5", (0, "f"), (1, "g"), fate=Fate.UNKNOWN),
    ]
    assert [] == names(history, {0: ["a", "c", "d"], 1: ["b", "e"]})


def test_a_write_cycle_is_g0() -> None:
    history = [transaction("t1", (0, "a"), (1, "b")), transaction("t2", (0, "c"), (1, "d"))]
    assert ["G0"] == names(history, {0: ["a", "c"], 1: ["d", "b"]})


def test_transactions_that_interleave_in_one_list_are_g0() -> None:
    history = [transaction("t1", (0, "a"), (0, "c")), transaction("t2", (0, "b"))]
    assert ["G0"] == names(history, {0: ["a", "b", "c"]})


def test_an_aborted_value_in_the_list_is_g1a() -> None:
    assert ["G1a"] == names([transaction("t1", (0, "a"), fate=Fate.ABORTED)], {0: ["a"]})


def test_an_aborted_value_that_was_read_is_g1a() -> None:
    history = [
        transaction("t1", (0, "a"), fate=Fate.ABORTED),
        transaction("t2", fate=Fate.UNKNOWN, reads={0: ["a"]}),
    ]
    assert ["G1a"] == names(history, {0: []})


def test_a_read_in_the_middle_of_a_transaction_is_g1b() -> None:
    history = [transaction("t1", (0, "a"), (0, "b")), transaction("t2", reads={0: ["a"]})]
    assert ["G1b"] == names(history, {0: ["a", "b"]})


def test_a_cycle_of_a_write_and_a_read_is_g1c() -> None:
    history = [
        transaction("t1", (0, "a"), (1, "b")),
        transaction("t2", (0, "c"), (2, "d")),
        transaction("t3", (1, "e"), reads={1: []}),
        transaction("t4", (0, "f"), reads={0: ["a", "c"]}),
    ]
    assert [] == names(history[:2], {0: ["a", "c"], 1: ["b"], 2: ["d"]})
    reader = transaction("t1", (0, "a"), (1, "b"), reads={2: ["d"]})
    assert ["G1c"] == names([reader, history[1]], {0: ["a", "c"], 1: ["b"], 2: ["d"]})


def test_two_updates_of_the_same_state_are_a_lost_update() -> None:
    history = [
        transaction("t1", (0, "a"), reads={0: []}),
        transaction("t2", (0, "b"), reads={0: []}),
    ]
    assert ["lost update", "G-single"] == names(history, {0: ["a", "b"]})


def test_a_committed_value_that_is_missing_is_a_lost_write() -> None:
    assert ["lost write"] == names([transaction("t1", (0, "a"), (1, "b"))], {0: ["a"], 1: []})


def test_a_part_of_a_transaction_is_found_also_where_its_outcome_is_unknown() -> None:
    history = [transaction("t1", (0, "a"), (1, "b"), fate=Fate.UNKNOWN)]
    assert ["partial transaction"] == names(history, {0: ["a"], 1: []})
    assert [] == names(history, {0: ["a"], 1: ["b"]})
    assert [] == names(history, {0: [], 1: []})


def test_a_value_twice_is_a_duplicate() -> None:
    assert ["duplicate"] == names([transaction("t1", (0, "a"))], {0: ["a", "a"]})


def test_a_read_that_is_no_beginning_of_the_list_has_another_order() -> None:
    history = [
        transaction("t1", (0, "a")),
        transaction("t2", (0, "b")),
        transaction("t3", fate=Fate.UNKNOWN, reads={0: ["b"]}),
    ]
    assert ["incompatible order"] == names(history, {0: ["a", "b"]})
