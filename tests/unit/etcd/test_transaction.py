"""Transactions of the port as transactions of etcd, without etcd."""

import pytest

from kalda.etcd.batch import Batch, WriteCall
from kalda.etcd.keys import Keys
from kalda.etcd.messages import KeyValue, OpResponse, RangeResponse
from kalda.etcd.transaction import Transaction, splits
from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kalda.zookeeper.port import Check, Create, Delete, Operation, SetData

KEYS = Keys("/kalda")


def transaction(*operations: Operation, counters: dict[str, KeyValue] | None = None) -> Transaction:
    return Transaction(KEYS, operations, lease=7, counters=counters or {})


def reads(found: Transaction, nodes: dict[str, KeyValue], counts: dict[str, int]) -> list[OpResponse]:
    """Answer the reads of a transaction that failed."""
    return [
        *(RangeResponse([nodes[path]] if path in nodes else []) for path in found.read_paths),
        *(RangeResponse(count=counts.get(path, 0)) for path in found.read_children),
    ]


def test_children_of_a_znode_are_one_range_without_deeper_ones() -> None:
    first, end = KEYS.children("/a")
    inside = [KEYS.znode("/a/b"), KEYS.znode("/a/c d")]
    outside = [KEYS.znode(path) for path in ("/", "/a", "/ab", "/ab/c", "/a/b/c", "/b/a", "/a/b/c/d")]
    assert all(first <= key < end for key in inside)
    assert not any(first <= key < end for key in outside)
    assert ["/a/b", "/a/c d"] == [KEYS.path_of(key) for key in inside]
    first, end = KEYS.children("/")
    assert first <= KEYS.znode("/a") < end
    assert not first <= KEYS.znode("/a/b") < end
    deep = "/" + "/".join("abcdefghijk")
    assert not first <= KEYS.znode(deep) < end


def test_failed_operation_is_found_in_the_order_of_the_operations() -> None:
    nodes = {"/a": KeyValue(version=3), "/": KeyValue(version=1)}
    for operations, error_class, index in (
        ([Check("/a", 2), Create("/a")], NodeExistsError, 1),
        ([Check("/a", 1), Create("/a")], BadVersionError, 0),
        ([Create("/b"), SetData("/none", b"")], NoNodeError, 1),
        ([Create("/b"), Delete("/b", 5)], BadVersionError, 1),
        ([Create("/b"), Create("/b/c"), Delete("/b")], NotEmptyError, 2),
        ([Delete("/a", 2)], NotEmptyError, 0),
        ([Delete("/b"), SetData("/b", b"")], NoNodeError, 0),
    ):
        found = transaction(*operations)
        error = found.error_of(reads(found, nodes, {"/a": 1}))
        assert (error_class, index) == (type(error), error.operation_index)


def test_what_cancels_out_changes_nothing() -> None:
    found = transaction(Create("/a"), Create("/a/b"), Delete("/a/b"))
    assert {"/a"} == found.written
    assert 1 == len(found.success)


def test_what_fails_in_any_case_changes_nothing() -> None:
    """etcd refuses two changes of one key before it looks at conditions."""
    found = transaction(Delete("/a"), SetData("/a", b""))
    error = found.error_of(reads(found, {"/a": KeyValue(version=1)}, {}))
    assert (NoNodeError, 1) == (type(error), error.operation_index)
    assert [] == found.success


def test_two_changes_of_a_znode_are_refused() -> None:
    for operations in (
        [SetData("/a", b"1"), SetData("/a", b"2")],
        [Create("/b"), Delete("/a"), Create("/a")],
    ):
        with pytest.raises(BadArgumentsError) as caught:
            transaction(*operations)
        assert len(operations) - 1 == caught.value.operation_index
    assert splits([Delete("/a", 3), Create("/a")])
    assert not splits([Delete("/a"), Create("/b")])


def test_sequential_names_follow_the_counter() -> None:
    counters = {"/q": KeyValue(mod_revision=9, value=b"41")}
    found = transaction(Create("/q/n-", sequential=True), Create("/q/", sequential=True), counters=counters)
    assert {"/q/n-0000000041", "/q/0000000042"} == found.written
    assert b"43" == found.next_counters(12)["/q"].value
    assert not found.is_outdated(counters)
    assert found.is_outdated({"/q": KeyValue(mod_revision=10, value=b"42")})


def test_dependent_transactions_do_not_share_a_request() -> None:
    def batch_of(*many: list[Operation]) -> int:
        batch = Batch()
        for count, operations in enumerate(many):
            call = WriteCall("/", operations, is_single=False)
            if not batch.add_write(call, transaction(*operations)):
                return count
        return len(many)

    assert 3 == batch_of([Create("/a")], [Create("/b")], [Check("/c", 0), SetData("/d", b"")])
    assert 1 == batch_of([Create("/a")], [Create("/a/b")])
    assert 1 == batch_of([SetData("/a", b"")], [SetData("/a", b"")])
    assert 1 == batch_of([Create("/a/b")], [Delete("/a")])
    assert 1 == batch_of([Create("/q/n-", sequential=True)], [Create("/other")])
    fence: Operation = Check("/controller_epoch", 3)
    assert 40 < batch_of(*([fence, SetData(f"/s{number}", b"x", 1)] for number in range(200))) < 128
