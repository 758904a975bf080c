"""Keeps the state of transactions and idempotence and decides which request to a coordinator comes next.

The counterpart of Java's `TransactionManager`. Sans-IO: `next_request` gives the next `TransactionRequest`,
and exactly one of `handle_response`, `handle_coordinator_error` and `handle_failure` is called for each. At
most one request is under way, and no batch is drained meanwhile; `TransactionDriver` and `Sender` ensure
both. `transaction_outcomes` decides what a response means, `producer_state` what a failed batch means.

The event loop owns it, except that `maybe_add_partition` may be called in any thread.

Invariants. In V1 a batch goes out only after its partition was added to the transaction
(`is_send_to_partition_allowed`). EndTxn goes out only when no batch is left. Only an abort leaves the
abortable error state, nothing leaves the fatal one.
"""

import threading
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, cast

from kalda.clients.errors import (
    ClientError,
    FatalTransactionError,
    IllegalStateError,
    TransactionAbortableError,
    UnsupportedApiError,
    error_for,
)
from kalda.clients.held_lock import Reentrant, check_not_held
from kalda.clients.producer.producer_identity import (
    NO_PRODUCER,
    NO_PRODUCER_ID,
    PreparedTxnState,
    ProducerIdAndEpoch,
)
from kalda.clients.producer.producer_state import ProducerState
from kalda.clients.producer.transaction_outcomes import (
    Outcome,
    Verdict,
    committed_partitions,
    coordinator_outcome,
    outcome_of,
)
from kalda.clients.producer.transaction_requests import (
    TIMEOUT_NEVER_MS,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TransactionResult,
    TxnOffsetCommit,
)
from kalda.clients.producer.transaction_state import TransactionState
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.end_txn import EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from kalda.protocol.schema import Message
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

TRANSACTION_V2: Final = 2
"""The level of ``transaction.version`` from which every end raises the epoch (KIP-890)."""
_State = TransactionState


@dataclass(frozen=True, slots=True)
class _PendingTransition:
    """A call that changes the state, until the caller has seen the outcome: it can be repeated."""

    result: TransactionResult
    state: TransactionState
    operation: str


class TransactionManager(ProducerState):
    """The transactions of one producer, or only its idempotence (`transactional_id` None)."""

    def __init__(
        self,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        *,
        enables_two_phase_commit: bool = False,
    ) -> None:
        super().__init__(transactional_id)
        self.enables_two_phase_commit: Final = enables_two_phase_commit
        self.prepared_state = PreparedTxnState()
        """The token of the prepared transaction, empty outside PREPARED_TRANSACTION and its end."""
        self._timeout_ms: Final = TIMEOUT_NEVER_MS if enables_two_phase_commit else transaction_timeout_ms
        self._requests: Final[list[tuple[int, int, TransactionRequest]]] = []
        """A heap by priority, then age."""
        self._request_count = 0
        self._pending: _PendingTransition | None = None
        self._transaction_started = False
        """Whether the coordinator may know the transaction; without that, EndTxn is not sent."""
        self._is_next_v2 = False
        """Whether the transaction after the one that is being ended follows KIP-890."""
        self._features_epoch = -1
        self._features_version = 0
        self._authorization_error: ClientError | None = None
        self._partitions_lock: Final = threading.RLock()
        """Guards the three sets below, which `maybe_add_partition` changes in the threads of callers.

        Reentrant: a signal handler may send within the `send` that it interrupted.
        """
        self._new_partitions: set[TopicPartition] = set()
        self._pending_partitions: set[TopicPartition] = set()
        self._partitions: set[TopicPartition] = set()
        """The partitions that batches may go to; in V2 a partition is here at once."""

    # What the sender asks.

    @property
    def has_pending_requests(self) -> bool:
        """Whether `next_request` has something to give, now or when the batches are complete."""
        return bool(self._requests) or bool(self._new_partitions)

    def is_send_to_partition_allowed(self, partition: TopicPartition) -> bool:
        """Return whether a batch may be drained: in a transaction, only for its partitions."""
        if self.state is _State.FATAL_ERROR:
            return False
        return self.transactional_id is None or partition in self._partitions

    def take_authorization_error(self) -> ClientError | None:
        """Return the error with which a broker refused an id, once; the sender fails all batches with it."""
        error, self._authorization_error = self._authorization_error, None
        return error

    # The API of transactions. Each call that sends requests returns their result at once.

    def initialize_transactions(self, *, keep_prepared: bool = False) -> TransactionResult:
        """Ask for a producer id and fence older producers with the same transactional id.

        With `keep_prepared`, a prepared transaction is not aborted but continued (KIP-939).

        Raises:
            IllegalStateError: the producer is not transactional, is already initialized, or `keep_prepared`
                is used without two-phase commit.
        """
        if keep_prepared and not self.enables_two_phase_commit:
            raise IllegalStateError(
                "init_transactions(keep_prepared=True) needs transaction_two_phase_commit_enable=True"
            )
        pending = self._continue_pending(_State.INITIALIZING, "init_transactions")
        if pending is not None:
            return pending
        self.fail_if_error()
        if self.state is _State.READY:
            raise self._illegal("init_transactions", "it is called once for each producer")
        self._require("init_transactions", _State.INITIALIZING)
        self._transition(_State.INITIALIZING)
        request = self._init_producer_id(TransactionResult("init_transactions"), keeps_prepared=keep_prepared)
        self._enqueue(request)
        return self._set_pending(request.result, _State.INITIALIZING, "init_transactions")

    def begin_transaction(self) -> None:
        """Begin a transaction; no request is sent until the first record.

        Raises:
            IllegalStateError: `initialize_transactions` has not completed, or a transaction is open.
        """
        self._ensure_transactional("begin_transaction")
        self._refuse_while_pending("begin_transaction")
        self.fail_if_error()
        self._require("begin_transaction", _State.IN_TRANSACTION)
        self._transition(_State.IN_TRANSACTION)

    def send_offsets_to_transaction(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionResult:
        """Commit positions of a consumer group with the transaction (KIP-447).

        Raises:
            IllegalStateError: no transaction is open.
        """
        operation = "send_offsets_to_transaction"
        self._ensure_transactional(operation)
        self._refuse_while_pending(operation)
        self.fail_if_error()
        if self.state is not _State.IN_TRANSACTION:
            raise self._illegal(operation, "it needs an open transaction (begin_transaction)")
        result = TransactionResult(operation)
        if not offsets:
            result.complete()
        elif self.is_transaction_v2:
            self._transaction_started = True
            self._enqueue(self._offset_commit(result, dict(offsets), group))
        else:
            self._enqueue(
                AddOffsetsToTxn(
                    result=result,
                    transactional_id=self._id,
                    identity=self.identity,
                    group=group,
                    offsets=dict(offsets),
                )
            )
        return result

    def prepare_transaction(self) -> PreparedTxnState:
        """End the first phase of a two-phase commit; every batch must be complete (KIP-939).

        Raises:
            IllegalStateError: two-phase commit is not enabled, or no transaction is open.
        """
        operation = "prepare_transaction"
        self._ensure_two_phase_commit(operation)
        self._refuse_while_pending(operation)
        self.fail_if_error()
        self._require(operation, _State.PREPARED_TRANSACTION)
        self._transition(_State.PREPARED_TRANSACTION)
        self.prepared_state = PreparedTxnState(*self.identity)
        return self.prepared_state

    def begin_completion(self, prepared_state: PreparedTxnState) -> TransactionResult:
        """Commit the prepared transaction if `prepared_state` is its token; else abort it (KIP-939).

        Raises:
            IllegalStateError: no transaction is prepared.
        """
        operation = "complete_transaction"
        self._ensure_two_phase_commit(operation)
        if not self.prepared_state.has_transaction:
            raise self._illegal(
                operation,
                "no transaction is prepared; prepare_transaction comes first, or "
                "init_transactions(keep_prepared=True)",
            )
        return self.begin_commit() if prepared_state == self.prepared_state else self.begin_abort()

    def begin_commit(self) -> TransactionResult:
        """Commit once every batch of the transaction is complete.

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: the transaction can only be aborted.
        """
        pending = self._continue_pending(_State.COMMITTING_TRANSACTION, "commit_transaction")
        if pending is not None:
            return pending
        self.fail_if_error()
        self._require("commit_transaction", _State.COMMITTING_TRANSACTION)
        self._transition(_State.COMMITTING_TRANSACTION)
        return self._begin_end("commit_transaction", is_commit=True)

    def begin_abort(self) -> TransactionResult:
        """Abort; the sender drops the batches that were not sent.

        Raises:
            IllegalStateError: no transaction is open.
        """
        pending = self._continue_pending(_State.ABORTING_TRANSACTION, "abort_transaction")
        if pending is not None:
            return pending
        if self.state is not _State.ABORTABLE_ERROR:
            self.fail_if_error()
        self._require("abort_transaction", _State.ABORTING_TRANSACTION)
        error_code = self.last_error.code if self.last_error is not None else None
        self._transition(_State.ABORTING_TRANSACTION)
        self._drop_end()
        with self._partitions_lock:
            self._new_partitions.clear()
        # A coordinator that lost the id refuses EndTxn, too; a new id is all that can be had.
        knows_transaction = error_code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return self._begin_end("abort_transaction", is_commit=False, sends_end=knows_transaction)

    def abort_for_close(self) -> None:
        """Abort the transaction that is open, if any; a call that timed out will not be repeated."""
        if self.is_transactional and self.has_ongoing_transaction and not self.is_completing:
            self._pending = None
            self.begin_abort()

    def check_ready_to_send(self) -> None:
        """Raise an error where no record may be appended now. Thread-safe.

        Raises:
            IllegalStateError: a transactional producer is not in a transaction.
            TransactionAbortableError, FatalTransactionError: the producer is in an error state.
        """
        if self.last_error is not None:
            self.fail_if_error()
        if self.is_transactional and self.state is not _State.IN_TRANSACTION:
            self._refuse_while_pending("send")
            raise self._illegal("send", "call init_transactions and begin_transaction first")

    def check_not_inside(self) -> None:
        """Check that the caller did not interrupt `maybe_add_partition`, whose lock the loop needs.

        Raises:
            IllegalStateError: it did.
        """
        check_not_held(cast(Reentrant, self._partitions_lock), "producer", "`send`")

    def maybe_add_partition(self, partition: TopicPartition) -> None:
        """Make a partition part of the transaction before a record for it is appended. Thread-safe.

        Raises:
            IllegalStateError: a transactional producer is not in a transaction.
            TransactionAbortableError, FatalTransactionError: the producer is in an error state.
        """
        if self.last_error is not None:
            self.fail_if_error()
        if self.transactional_id is None:
            return
        if self.state is _State.IN_TRANSACTION and partition in self._partitions:
            return
        self._refuse_while_pending("send")
        with self._partitions_lock:
            if self.state is not _State.IN_TRANSACTION:
                raise self._illegal("send", "it needs an open transaction (begin_transaction)")
            if self.is_transaction_v2:
                self._partitions.add(partition)
                self._transaction_started = True
            elif partition not in self._partitions and partition not in self._pending_partitions:
                self._new_partitions.add(partition)

    # Requests to coordinators.

    def next_request(self, has_incomplete_batches: bool) -> TransactionRequest | None:
        """Return the request to send now, if any; it is under way until one of the handlers is called."""
        self._enqueue_new_partitions()
        while self._requests:
            request = self._requests[0][-1]
            if isinstance(request, EndTxn) and has_incomplete_batches and not self.has_error:
                return None
            heappop(self._requests)
            if self.last_error is not None:
                request.result.fail(self.last_error)
            elif isinstance(request, EndTxn) and not self._transaction_started:
                self._complete_transaction(request)
            else:
                return request
        return None

    def handle_response(self, request: TransactionRequest, response: Message) -> None:
        """Apply the response to a request and enter the next state."""
        outcome = outcome_of(request, response)
        if isinstance(response, TxnOffsetCommitResponse):
            assert isinstance(request, TxnOffsetCommit), f"{request} has an unexpected response"
            for partition, code in committed_partitions(response).items():
                if code == ErrorCode.NONE:
                    request.pending.pop(partition, None)
        if outcome.verdict is Verdict.DONE:
            self._succeeded(request, response)
        else:
            self._apply(request, outcome)

    def handle_coordinator_error(self, request: TransactionRequest, error: ClientError) -> None:
        """The coordinator of a request could not be looked up."""
        if error.is_retriable or error.code is None:
            self.handle_failure(request, error)
        else:
            self._apply(request, coordinator_outcome(error.code, "its coordinator"))

    def handle_failure(self, request: TransactionRequest, error: ClientError) -> None:
        """Handle a request without a response: the connection failed, or no version supports its fields."""
        if isinstance(error, UnsupportedApiError):
            self._become_fatal(f"the cluster is too old: {error}", ErrorCode.UNSUPPORTED_VERSION, error)
            self._fail(request)
        else:
            self._retry(request, looks_up=True)

    def handle_internal_error(self, request: TransactionRequest, error: Exception) -> None:
        """Enter the fatal state after a fault of this client, because the transaction's state is unknown."""
        self._become_fatal(f"internal error: {error!r}", None, error)
        self._fail(request)

    def note_node_versions(
        self, *, coordinator_bumps_epochs: bool | None, features_epoch: int, transaction_version: int
    ) -> None:
        """Store a broker's announced InitProducerId v3 (coordinators only) and features (KIP-584).

        A level of ``transaction.version`` takes effect with the next transaction.
        """
        if coordinator_bumps_epochs is not None:
            self._coordinator_bumps_epochs = coordinator_bumps_epochs
        if features_epoch > self._features_epoch:
            self._features_epoch = features_epoch
            self._features_version = transaction_version

    def close(self) -> None:
        """Fail every pending request; the producer is closed without waiting for them."""
        error = FatalTransactionError("the producer was closed before the request was sent")
        while self._requests:
            heappop(self._requests)[-1].result.fail(error)
        if self._pending is not None:
            self._pending.result.fail(error)

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """Give an idempotent producer its id, or the next epoch after a gap; called before each drain."""
        if self.is_transactional or self.has_fatal_error:
            return
        if self._epoch_bump_required:
            self._bump_idempotent_epoch()
        if self.state is _State.UNINITIALIZED and not self.has_producer_id:
            self._transition(_State.INITIALIZING)
            self._enqueue(self._init_producer_id(TransactionResult("InitProducerId")))

    # Responses.

    def _succeeded(self, request: TransactionRequest, response: Message) -> None:
        match request, response:
            case InitProducerId(), InitProducerIdResponse():
                self._initialized(request, response)
            case AddPartitionsToTxn(), _:
                with self._partitions_lock:
                    self._pending_partitions.difference_update(request.partitions)
                    self._partitions.update(request.partitions)
                self._transaction_started = True
                request.result.complete()
            case AddOffsetsToTxn(), _:
                self._transaction_started = True
                self._enqueue(self._offset_commit(request.result, dict(request.offsets), request.group))
            case TxnOffsetCommit(), _ if request.pending:
                self._retry(request, looks_up=False)
            case TxnOffsetCommit(), _:
                request.result.complete()
            case EndTxn(), EndTxnResponse():
                if response.producer_id != NO_PRODUCER_ID:
                    # From version 5 on, every end gives the identity of the next transaction.
                    self._set_identity(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
                    self.sequences.reset()
                self._complete_transaction(request)

    def _initialized(self, request: InitProducerId, response: InitProducerIdResponse) -> None:
        self._set_identity(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
        self._clear_transaction()
        if request.is_epoch_bump:
            self.sequences.reset()
        elif self.is_transactional:
            self.is_transaction_v2 = self._is_next_v2 = self._features_version >= TRANSACTION_V2
        self.prepared_state = PreparedTxnState(
            response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch
        )
        if self.prepared_state.has_transaction:
            self._transaction_started = True
            self._transition(_State.PREPARED_TRANSACTION)
        else:
            self._transition(_State.READY)
        request.result.complete()

    def _apply(self, request: TransactionRequest, outcome: Outcome) -> None:
        """Retry a request, or go to the error state that its outcome asks for."""
        verdict, code = outcome.verdict, outcome.code
        if verdict is Verdict.RETRY or verdict is Verdict.LOOK_UP:
            waits_for_previous = not isinstance(request, EndTxn | InitProducerId)
            request.retries_at_once = code is ErrorCode.CONCURRENT_TRANSACTIONS and waits_for_previous
            self._retry(request, looks_up=verdict is Verdict.LOOK_UP)
            return
        if isinstance(request, AddPartitionsToTxn):
            with self._partitions_lock:
                self._pending_partitions.difference_update(request.partitions)
        what = " for ".join(filter(None, (type(request).__name__, outcome.subject)))
        cause = error_for(code, what, self._hint(request, code))
        if verdict is Verdict.UNAUTHORIZED:
            self._refused_id(request, cause)
            return
        if verdict is Verdict.FENCED:
            self._become_fenced(cause)
        elif verdict is Verdict.ABORT:
            self._become_abortable(str(cause), code, cause)
        elif verdict is Verdict.ABORT_AND_BUMP and self._can_continue_after_abort:
            self._epoch_bump_required = True
            if self.is_aborting:
                # Nothing is left to abort; the producer continues with the next epoch, or another id.
                self._complete_transaction(request)
                return
            self._become_abortable(str(cause), code, cause)
        else:
            self._become_fatal(str(cause), code, cause)
        self._fail(request)

    def _hint(self, request: TransactionRequest, code: ErrorCode) -> str | None:
        """Return a text that replaces the general one of a code; None to keep that."""
        is_refused = code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not is_refused or not isinstance(request, InitProducerId) or not self.enables_two_phase_commit:
            return None
        return (
            "the broker allows no two-phase commit for this id; set `transaction.two.phase.commit.enable` to "
            "true on the brokers and allow Write and TwoPhaseCommit on the id, or leave it out here"
        )

    def _on_fatal(self, error: FatalTransactionError) -> None:
        if self._pending is not None:
            self._pending.result.fail(error)

    def _refused_id(self, request: TransactionRequest, error: ClientError) -> None:
        """A broker refused an id for want of authorization: the application may try again later."""
        if self.is_completing or self.has_producer_id:
            self._become_fatal(str(error), error.code, error)
            self._fail(request)
            return
        self._transition(_State.UNINITIALIZED)
        self._authorization_error = error
        request.result.fail(error)

    def _fail(self, request: TransactionRequest) -> None:
        if self.last_error is not None:
            request.result.fail(self.last_error)

    def _retry(self, request: TransactionRequest, *, looks_up: bool) -> None:
        request.attempts += 1
        request.coordinator_is_stale |= looks_up
        self._enqueue(request)

    # Requests.

    def _enqueue(self, request: TransactionRequest) -> None:
        self._request_count += 1
        heappush(self._requests, (request.priority, self._request_count, request))

    def _enqueue_new_partitions(self) -> None:
        if not self._new_partitions or self.last_error is not None:
            return
        with self._partitions_lock:
            added = tuple(sorted(self._new_partitions))
            self._pending_partitions.update(added)
            self._new_partitions.clear()
        self._enqueue(
            AddPartitionsToTxn(
                result=TransactionResult("AddPartitionsToTxn"),
                transactional_id=self._id,
                identity=self.identity,
                partitions=added,
            )
        )

    def _init_producer_id(
        self, result: TransactionResult, *, is_epoch_bump: bool = False, keeps_prepared: bool = False
    ) -> InitProducerId:
        return InitProducerId(
            result=result,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms if self.is_transactional else TIMEOUT_NEVER_MS,
            identity=self.identity if is_epoch_bump else NO_PRODUCER,
            is_epoch_bump=is_epoch_bump,
            enables_two_phase_commit=self.enables_two_phase_commit,
            keeps_prepared=keeps_prepared,
        )

    def _offset_commit(
        self,
        result: TransactionResult,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> TxnOffsetCommit:
        return TxnOffsetCommit(
            result=result,
            transactional_id=self._id,
            identity=self.identity,
            group=group,
            is_v2=self.is_transaction_v2,
            pending=offsets,
        )

    def _begin_end(self, operation: str, *, is_commit: bool, sends_end: bool = True) -> TransactionResult:
        """Queue EndTxn, and InitProducerId where the next transaction needs another epoch."""
        self._enqueue_new_partitions()
        result = TransactionResult(operation)
        if sends_end:
            self._enqueue(
                EndTxn(
                    result=result,
                    transactional_id=self._id,
                    identity=self.identity,
                    is_commit=is_commit,
                    is_v2=self.is_transaction_v2,
                )
            )
            self._adopt_features()
        if self._epoch_bump_required or not sends_end:
            result = TransactionResult(operation)
            self._enqueue(self._init_producer_id(result, is_epoch_bump=True))
        return self._set_pending(result, self.state, operation)

    def _drop_end(self) -> None:
        """Drop a commit that was not sent and failed after its time-out.

        It may wait behind a request under way. If it were sent now, a transaction would be committed without
        the records that failed.
        """
        dropped = [each for each in self._requests if isinstance(each[-1], EndTxn | InitProducerId)]
        for each in dropped:
            self._requests.remove(each)
            each[-1].result.fail(
                TransactionAbortableError(f"{self._prefix}the transaction is aborted instead")
            )
        heapify(self._requests)

    def _adopt_features(self) -> None:
        """Use the transaction protocol that the cluster has finalized, from the next transaction on."""
        self._is_next_v2 = self._features_version >= TRANSACTION_V2
        if self._is_next_v2 and not self.is_transaction_v2:
            # Late batches of the last V1 transaction must not enter the first V2 one.
            self._epoch_bump_required = True

    def _complete_transaction(self, request: TransactionRequest) -> None:
        """End the transaction; where another epoch is needed, the call that sent `request` waits for it."""
        needs_epoch = self._epoch_bump_required
        self._transition(_State.INITIALIZING if needs_epoch else _State.READY)
        self._clear_transaction()
        if needs_epoch and not any(isinstance(each, InitProducerId) for *_, each in self._requests):
            self._enqueue(self._init_producer_id(request.result, is_epoch_bump=True))
        else:
            request.result.complete()

    def _clear_transaction(self) -> None:
        with self._partitions_lock:
            self._new_partitions.clear()
            self._pending_partitions.clear()
            self._partitions.clear()
        self._transaction_started = False
        self._epoch_bump_required = False
        self.prepared_state = PreparedTxnState()
        self.is_transaction_v2 = self._is_next_v2

    @property
    def _id(self) -> str:
        assert self.transactional_id is not None, "only transactional producers have these requests"
        return self.transactional_id

    # Calls that are repeated after a time-out.

    def _continue_pending(self, state: TransactionState, operation: str) -> TransactionResult | None:
        """Return the result of the same call if it timed out before; None for a new call."""
        self._ensure_transactional(operation)
        pending = self._pending
        if pending is not None and not pending.result.is_acked and pending.state is state:
            return pending.result
        self._refuse_while_pending(operation)
        return None

    def _set_pending(
        self, result: TransactionResult, state: TransactionState, operation: str
    ) -> TransactionResult:
        self._pending = _PendingTransition(result, state, operation)
        return result

    def _refuse_while_pending(self, operation: str) -> None:
        pending = self._pending
        if pending is not None and not pending.result.is_acked:
            raise self._illegal(
                operation, f"the previous {pending.operation} timed out; call {pending.operation} again"
            )

    def _ensure_transactional(self, operation: str) -> None:
        if not self.is_transactional:
            raise IllegalStateError(f"{operation} needs a producer with transactional_id")

    def _ensure_two_phase_commit(self, operation: str) -> None:
        self._ensure_transactional(operation)
        if not self.enables_two_phase_commit:
            raise IllegalStateError(f"{operation} needs transaction_two_phase_commit_enable=True")
