"""What etcd's history says of a request equals the response that it got."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.etcd import messages
from kalda.etcd.batch import Batch, WriteCall
from kalda.etcd.fence import Fence
from kalda.etcd.keys import Keys
from kalda.etcd.messages import KeyValue, TxnResponse
from kalda.etcd.settlement import history_reads, response_of
from kalda.etcd.transaction import Transaction
from kalda.simulation.etcd import wire
from kalda.simulation.etcd.store import EtcdStore
from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.port import Check, Create, Delete, Operation, SetData, Stat

KEYS = Keys("/kalda")
PATHS = ("/a", "/b", "/a/c", "/a/d", "/b/e", "/a/c/f")
paths = st.sampled_from(PATHS)
versions = st.integers(-1, 2)
operations = st.one_of(
    st.builds(Create, paths, st.binary(max_size=3), st.booleans()),
    st.builds(lambda parent: Create(f"{parent}/n-", sequential=True), paths),
    st.builds(SetData, paths, st.binary(max_size=3), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, st.integers(0, 2)),
)
transactions = st.lists(operations, min_size=1, max_size=4)


def run(store: EtcdStore, request: bytes) -> TxnResponse:
    return messages.read_txn(store.txn(wire.read_txn(request)))


def outcomes_of(batch: Batch, response: TxnResponse, revision: int) -> list[object]:
    """Return the outcomes of all transactions, without the numbers of children, which other ones change."""
    found: list[object] = []
    for call, start in batch.calls:
        assert isinstance(call, WriteCall)
        transaction, inner = call.transaction, response.responses[start]
        assert transaction is not None
        assert isinstance(inner, TxnResponse)
        if inner.succeeded:
            results = transaction.results(inner.responses, revision)
            found.append(
                [replace(each, num_children=0) if isinstance(each, Stat) else each for each in results]
            )
            continue
        counters = transaction.counters_of(inner.responses)
        error = transaction.error_of(inner.responses)
        found.append((transaction.is_outdated(counters), type(error), error.operation_index, str(error)))
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(paths, max_size=6), st.lists(transactions, max_size=12), st.booleans())
def test_history_says_what_the_response_said(
    existing: list[str], many: list[list[Operation]], knows_counters: bool
) -> None:
    store = EtcdStore()
    fence = Fence(KEYS)
    fence.lease, fence.version = store.grant(9, 0.0), 1
    counter = messages.put_op(KEYS.counter("/a"), b"3")
    puts = [messages.put_op(KEYS.znode(path), b"x") for path in dict.fromkeys(["/", *existing])]
    before = run(store, messages.txn((), [counter, *puts, fence.put()]))
    counters = {"/a": KeyValue(mod_revision=before.revision, value=b"3")} if knows_counters else {}
    batch = Batch()
    for each in many:
        try:
            transaction = Transaction(KEYS, each, lease=fence.lease, counters=counters)
        except BadArgumentsError:
            continue
        batch.add_write(WriteCall("/", each, is_single=False), transaction)
    if not batch.calls:
        return
    response = run(store, batch.request(fence))
    assert response.succeeded
    # What changes later is not looked at.
    run(store, messages.txn((), [messages.delete_op(KEYS.znode(path)) for path in PATHS]))
    revision = response.revision
    reads = history_reads(batch, revision)
    history = [found for each in reads for found in run(store, messages.txn((), [each])).responses]
    settled = response_of(batch, history, revision)
    assert outcomes_of(batch, response, revision) == outcomes_of(batch, settled, revision)
