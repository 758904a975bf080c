from kalda.spark.sink.prepared import _Names


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
