"""The model of etcd does what etcd 3 does, as `kalda.etcd` relies on it."""

import pytest

from kalda.etcd import messages
from kalda.etcd.messages import KeyValue, PutResponse, RangeResponse, TxnResponse
from kalda.simulation.etcd import wire
from kalda.simulation.etcd.store import EtcdStore, StoreRefusedError


def run(
    store: EtcdStore, *success: bytes, compares: tuple[bytes, ...] = (), failure: tuple[bytes, ...] = ()
) -> TxnResponse:
    return messages.read_txn(store.txn(wire.read_txn(messages.txn(compares, success, failure))))


def read(store: EtcdStore, key: bytes, revision: int = 0) -> KeyValue | None:
    found = run(store, messages.range_op(key, revision=revision)).responses[0]
    assert isinstance(found, RangeResponse)
    return found.kvs[0] if found.kvs else None


def test_a_transaction_has_one_revision_and_counts_versions() -> None:
    store = EtcdStore()
    first = run(store, messages.put_op(b"a", b"1"), messages.put_op(b"b", b"1"))
    second = run(store, messages.put_op(b"a", b"2", previous=True))
    assert (2, 3) == (first.revision, second.revision)
    assert isinstance(second.responses[0], PutResponse)
    assert KeyValue(b"a", 2, 2, 1, b"1") == second.responses[0].previous
    assert KeyValue(b"a", 2, 3, 2, b"2") == read(store, b"a")
    assert KeyValue(b"a", 2, 2, 1, b"1") == read(store, b"a", revision=2)
    assert 3 == run(store, messages.range_op(b"a")).revision


def test_a_read_without_the_value_has_the_lease_of_one_key_alone() -> None:
    """etcd 3.7 reads a range of keys from its index, which has no leases."""
    store = EtcdStore()
    lease = store.grant(10, 0.0)
    run(store, messages.put_op(b"a", b"1", lease=lease))
    one, more = run(
        store, messages.range_op(b"a", keys_only=True), messages.range_op(b"a", b"b", keys_only=True)
    ).responses
    assert RangeResponse([KeyValue(b"a", 2, 2, 1, b"", lease)], 1) == one
    assert RangeResponse([KeyValue(b"a", 2, 2, 1)], 1) == more


def test_conditions_of_inner_transactions_are_evaluated_before_any_change() -> None:
    store = EtcdStore()
    absent = messages.compare(messages.EQUAL, messages.CREATE, b"a", 0)
    inner = messages.txn((absent,), (messages.put_op(b"b", b"absent"),), (messages.put_op(b"b", b"there"),))
    run(store, messages.put_op(b"a", b""), messages.txn_op(inner))
    found = read(store, b"b")
    assert found is not None
    assert b"absent" == found.value


def test_a_condition_on_a_range_holds_where_there_is_no_key() -> None:
    store = EtcdStore()
    none = messages.compare(messages.EQUAL, messages.CREATE, b"a/", 0, b"a0")
    assert run(store, compares=(none,)).succeeded
    run(store, messages.put_op(b"a/b", b""))
    assert not run(store, compares=(none,)).succeeded


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([messages.put_op(b"a", b""), messages.delete_op(b"a")], "duplicate key"),
        (
            [messages.put_op(b"a", b""), messages.txn_op(messages.txn((), (messages.put_op(b"a", b""),)))],
            "duplicate key",
        ),
        ([messages.range_op(b"a")] * 129, "too many operations"),
        ([messages.put_op(b"a", b"", lease=5)], "lease not found"),
        ([messages.put_op(b"x", b""), messages.range_op(b"a", revision=9)], "future revision"),
    ],
)
def test_a_refused_transaction_changes_nothing(operations: list[bytes], words: str) -> None:
    store = EtcdStore()
    with pytest.raises(StoreRefusedError, match=words):
        run(store, *operations)
    assert (1, {}) == (store.revision, store.keys)


def test_inner_operations_count_on_top_of_the_outer_ones() -> None:
    store = EtcdStore()
    inner = messages.txn_op(messages.txn((), [messages.range_op(b"a")] * 100))
    run(store, *[messages.range_op(b"a")] * 27, inner)
    with pytest.raises(StoreRefusedError, match="too many operations"):
        run(store, *[messages.range_op(b"a")] * 28, inner)


def test_the_end_of_a_lease_deletes_its_keys_in_one_revision() -> None:
    store = EtcdStore()
    lease = store.grant(5, now=0.0)
    run(store, messages.put_op(b"a", b"", lease=lease), messages.put_op(b"b", b"", lease=lease))
    run(store, messages.put_op(b"b", b"1"))
    run(store, messages.put_op(b"c", b"", lease=lease))
    run(store, messages.put_op(b"c", b"1", keeps_lease=True))
    assert 5 == store.renew(lease, now=4.0)
    store.expire(now=8.9)
    assert {b"a", b"b", b"c"} == store.keys.keys()
    store.expire(now=9.0)
    assert {b"b"} == store.keys.keys()
    ((revision, events),) = store.changes_from(6)
    assert (6, [(True, b"a"), (True, b"c")]) == (
        revision,
        [(each.is_deletion, each.kv.key) for each in events],
    )
    assert 0 == store.renew(lease, now=9.0)


def test_compacted_revisions_are_gone_and_the_state_stays() -> None:
    store = EtcdStore()
    for value in (b"1", b"2", b"3"):
        run(store, messages.put_op(b"a", value))
    store.compact(3)
    with pytest.raises(StoreRefusedError, match="has been compacted"):
        read(store, b"a", revision=2)
    for revision, value in ((3, b"2"), (4, b"3"), (0, b"3")):
        found = read(store, b"a", revision=revision)
        assert found is not None
        assert value == found.value
    assert [4] == [revision for revision, _ in store.changes_from(4)]


def test_a_full_database_takes_reads_and_deletions_only() -> None:
    store = EtcdStore()
    run(store, messages.put_op(b"a", b""))
    store.fill()
    for value in (b"1", b"2"):
        with pytest.raises(StoreRefusedError, match="database space exceeded"):
            run(store, messages.put_op(b"a", value))
        found = read(store, b"a")
        assert found is not None
        assert b"1" == found.value, "the request that reaches the quota takes effect, and is refused"
    run(store, messages.delete_op(b"a"))
    assert read(store, b"a") is None
