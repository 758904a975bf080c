import pytest

from kalda.spark.sink.prepared import PreparedHandle, _Names


def test_a_handle_survives_json() -> None:
    """Pipelines store handles in a table's commit, and read them after a crash."""
    handle = PreparedHandle("kalda-q-sink-t-0", 7, 3, 100)
    assert handle == PreparedHandle.from_json(handle.to_json())


@pytest.mark.parametrize(
    "fields", [{}, {"transactional_id": 1, "producer_id": 1, "epoch": 1, "row_count": 1}]
)
def test_other_json_is_refused(fields: dict[str, object]) -> None:
    """A commit of a wrong transaction would be worse than an error."""
    with pytest.raises(ValueError, match="no handle of a prepared transaction"):
        PreparedHandle.from_json(fields)


def test_an_id_is_taken_once_for_each_batch() -> None:
    """A worker runs several tasks of a batch; the second must not fence what the first has prepared."""
    names = _Names()
    first, second = names.take("kalda-q-", 5), names.take("kalda-q-", 5)
    assert first != second
    assert {first, second} == {names.take("kalda-q-", 6), names.take("kalda-q-", 6)}


def test_ids_of_outputs_are_independent() -> None:
    """Two queries of one application share the worker processes, with batches of their own."""
    names = _Names()
    assert names.take("kalda-a-", 5).startswith("kalda-a-")
    assert names.take("kalda-b-", 1).startswith("kalda-b-")


def test_two_processes_never_share_an_id() -> None:
    """Another process's task could fence a transaction that is decided."""
    assert _Names().take("kalda-q-", 1) != _Names().take("kalda-q-", 1)
