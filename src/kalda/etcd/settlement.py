"""Finds out whether a request whose response is lost took effect, and rebuilds the response. Sans-IO.

Each request with writes depends on the version of the session's key and raises it (`kalda.etcd.fence`). The
key's value says whether a request changed it last. So the key shows whether the request took effect, and at
which revision. etcd keeps the states of all keys by revision. The conditions of the inner transactions were
evaluated on the state of the revision before, so that state shows what each of them did.

If etcd has compacted that revision, the results cannot be found.
"""

from collections.abc import Sequence
from enum import Enum

from kalda.etcd import messages
from kalda.etcd.batch import Batch, WriteCall
from kalda.etcd.fence import REQUEST_VALUE, Fence
from kalda.etcd.messages import KeyValue, OpResponse, PutResponse, TxnResponse
from kalda.etcd.transaction import Transaction


class Fate(Enum):
    """The outcome of a request whose response was lost."""

    NOTHING = "nothing"
    """It took no effect, and never will."""
    DONE = "done"
    """It took effect when the session's key was last changed."""
    UNKNOWN = "unknown"


def settling_request(fence: Fence) -> bytes:
    """Return the transaction behind which a request with this fence has taken effect or never will.

    It reads the session's key. If the key still has the known version, it raises it as well.
    """
    return messages.txn((fence.holds,), (fence.read(), fence.put()), (fence.read(),))


def fate_of(found: KeyValue, version: int, *, is_settled: bool) -> Fate:
    """Return the outcome of the request that expected this version, from the session's key.

    `is_settled` is false if the request may still take effect where it has not.
    """
    if found.version == version + 1:
        return Fate.DONE if found.value == REQUEST_VALUE else Fate.NOTHING
    return Fate.NOTHING if found.version == version and is_settled else Fate.UNKNOWN


def history_reads(batch: Batch, revision: int) -> list[bytes]:
    """Return the reads that show what a request did which took effect at a revision."""
    return [read for transaction in _transactions(batch) for read in transaction.history_reads(revision)]


def response_of(batch: Batch, history: Sequence[OpResponse], revision: int) -> TxnResponse:
    """Return the response of that request as far as its writes go, from the responses of `history_reads`."""
    responses: list[OpResponse] = [PutResponse()]
    start = 0
    for transaction in _transactions(batch):
        end = start + len(transaction.history_reads(revision))
        responses.append(transaction.response_of(history[start:end]))
        start = end
    return TxnResponse(succeeded=True, responses=responses, revision=revision)


def _transactions(batch: Batch) -> list[Transaction]:
    return [
        call.transaction
        for call, _ in batch.calls
        if isinstance(call, WriteCall) and call.transaction is not None
    ]
