"""Implements the admin client's operations on transactions and producers (KIP-664).

It holds the methods, the values that they take and return, and the requests and responses.
Names of values are those of Java's client.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.admin.routes import (
    BROKER_WITH_ID,
    LEADER_OF_PARTITION,
    Broker,
    Coordinator,
    PartitionLeader,
    Route,
)
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import UnsupportedApiError, error_for
from kalda.clients.reprs import fields_html
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages import describe_transactions
from kalda.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kalda.protocol.messages.describe_producers import ProducerState as ProducerStateData
from kalda.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kalda.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@public
class TransactionState(StrEnum):
    """The state of a transaction; the values are the protocol's words."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, word: str) -> "TransactionState":
        """Return the state with this name; UNKNOWN for one that Kalda does not know."""
        return _STATES.get(word, cls.UNKNOWN)


_STATES: Final = {each.value: each for each in TransactionState}


@public
@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and the state of its last transaction."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@public
@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The last transaction of a transactional id."""

    coordinator_id: int
    """The broker that coordinates the transactional id."""
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    """Milliseconds since the epoch; None while there is no transaction."""
    topic_partitions: frozenset[TopicPartition]
    """The partitions in the transaction; while it ends, those without a marker."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class ProducerState:
    """An idempotent or transactional producer that has written to a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 if not known."""
    last_timestamp_ms: int
    """-1 if not known."""
    coordinator_epoch: int | None
    """The epoch of the coordinator that wrote the last marker; None without one."""
    current_transaction_start_offset: int | None
    """The first offset of the open transaction; None without one."""


@public
@dataclass(frozen=True, slots=True, order=True)
class AbortTransactionSpec:
    """A hanging transaction to abort, as `AsyncAdmin.describe_producers` describes it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The epoch of the marker: that of the producer's last one, or 0 without one."""

    def __str__(self) -> str:
        return f"producer {self.producer_id} in {self.topic_partition}"


@public
@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class TransactionMethods(AdminMethods):
    """Lists and describes transactions and producers, aborts transactions, fences producers."""

    async def list_transactions(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: int | None = None,
    ) -> Listing[TransactionListing]:
        """List the transactional ids that all brokers coordinate (brokers 3.0 and newer).

        Args:
            states: Only ids whose transaction is in one of these states; empty for all.
            producer_ids: Only ids with one of these producer ids; empty for all.
            duration_ms: Only transactions that run for longer (brokers 3.8 and newer, KIP-994).
            transactional_id_pattern: Only ids that match this pattern as a whole, in RE2's syntax (KIP-1152).
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            The transactions, sorted by id, and the errors of brokers that did not answer.

        Raises:
            ClientError: no broker can be reached.
        """
        brokers = await self._open_runner().broker_ids(timeout_ms)
        operation = ListTransactions(states, producer_ids, duration_ms, transactional_id_pattern)
        answers = await self._run(operation, brokers, timeout_ms, outcomes=True)
        found = [each for listings in answers.results.values() for each in listings]
        return Listing(sorted(found, key=lambda each: each.transactional_id), answers.errors)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, TransactionDescription]:
        """Describe the last transaction of each transactional id (brokers 3.0 and newer).

        Args:
            transactional_ids: The ids.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By id, the description or the error, e.g. TRANSACTIONAL_ID_NOT_FOUND.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DescribeTransactions(), transactional_ids, timeout_ms, outcomes=outcomes)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, tuple[ProducerState, ...]]:
        """Describe the idempotent and transactional producers of partitions (brokers 2.8 and newer).

        A hanging transaction shows here: an open transaction whose coordinator has none.

        Args:
            partitions: The partitions.
            broker_id: The replica to ask; None asks the leaders.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By partition, its producers or the error.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DescribeProducers(broker_id), partitions, timeout_ms, outcomes=outcomes)

    async def abort_transaction(
        self, specs: Iterable[AbortTransactionSpec], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AbortTransactionSpec, None]:
        """Abort hanging transactions, by a marker in the partition's log (brokers 2.7 and newer).

        It is for transactions that their coordinator no longer knows. Where the coordinator knows the
        transaction, `fence_producers` ends it in all partitions.

        Args:
            specs: The producers and partitions.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By producer and partition, None or the error: INVALID_PRODUCER_EPOCH,
                TRANSACTION_COORDINATOR_FENCED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(AbortTransactions(), specs, timeout_ms, outcomes=outcomes)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, ProducerIdAndEpoch]:
        """Fence all producers with the transactional ids, and abort their open transactions.

        Args:
            transactional_ids: The ids; one that is not known is created.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By id, the producer id and the new epoch, or the error.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(FenceProducers(), transactional_ids, timeout_ms, outcomes=outcomes)

    async def force_terminate_transaction(
        self, transactional_ids: Iterable[str], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Abort the open transactions of transactional ids, also prepared ones (KIP-939).

        Args:
            transactional_ids: The ids. Their producers are fenced.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By id, None or the error.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        fenced = await self.fence_producers(transactional_ids, outcomes=outcomes, timeout_ms=timeout_ms)
        return Outcomes(dict.fromkeys(fenced.results), fenced.errors)


_COORDINATOR: Final[Coordinator[str]] = Coordinator(
    CoordinatorType.TRANSACTION, lambda transactional_id: transactional_id
)
_LEADER_OF_SPEC: Final[PartitionLeader[AbortTransactionSpec]] = PartitionLeader(
    lambda spec: spec.topic_partition
)
_DURATION_FROM: Final = 1
_PATTERN_FROM: Final = 2
_NO_DURATION: Final = -1


class ListTransactions(AdminOperation[int, list[TransactionListing]]):
    """Lists the transactions that each broker coordinates; the keys are broker ids."""

    title = "list transactions of broker"
    route = BROKER_WITH_ID
    retry_codes = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})

    def __init__(
        self,
        states: Collection[TransactionState],
        producer_ids: Collection[int],
        duration_ms: int | None,
        transactional_id_pattern: str | None,
    ) -> None:
        self._states: Final = states
        self._producer_ids: Final = producer_ids
        self._duration_ms: Final = duration_ms
        self._pattern: Final = transactional_id_pattern

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, list[TransactionListing]]]:
        version = context.versions.latest(ApiKey.LIST_TRANSACTIONS)
        if self._duration_ms is not None and version < _DURATION_FROM:
            raise UnsupportedApiError(
                f"{self.title} {context.broker_id}: brokers before 3.8 do not filter by `duration_ms`; "
                "call without it"
            )
        # Older brokers do not know the pattern, so this client applies it.
        pattern = self._pattern
        matches: Callable[[str], bool] = _everything
        if pattern is not None and version < _PATTERN_FROM:
            matches = _matcher(pattern)
            pattern = None
        message = ListTransactionsRequest(
            state_filters=[each.value for each in self._states],
            producer_id_filters=list(self._producer_ids),
            duration_filter=_NO_DURATION if self._duration_ms is None else self._duration_ms,
            transactional_id_pattern=pattern,
        )

        def read(response: ListTransactionsResponse, answers: Answers[int, list[TransactionListing]]) -> None:
            (broker_id,) = keys
            if response.error_code:
                answers.fail(broker_id, response.error_code)
                return
            listings = [
                TransactionListing(
                    each.transactional_id, each.producer_id, TransactionState.of(each.transaction_state)
                )
                for each in response.transaction_states
                if matches(each.transactional_id)
            ]
            answers.succeed(broker_id, listings)

        yield AdminRequest.of(message, ListTransactionsResponse, keys, read)


def _everything(_transactional_id: str) -> bool:
    return True


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether an id as a whole matches a pattern in RE2's syntax."""
    # Imported here: only old brokers need it, and start-up time counts.
    from kalda.common.regex import RegexError, compile_regex

    try:
        compiled = compile_regex(pattern)
    except RegexError as error:
        what = f"list transactions that match {pattern!r}"
        raise error_for(ErrorCode.INVALID_REGULAR_EXPRESSION, what, str(error)) from None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


class DescribeTransactions(AdminOperation[str, TransactionDescription]):
    """Describes transactions by their transactional ids."""

    title = "describe transaction"
    route = _COORDINATOR

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, TransactionDescription]]:
        """Ask one coordinator for all its ids."""

        def read(
            response: DescribeTransactionsResponse, answers: Answers[str, TransactionDescription]
        ) -> None:
            for each in response.transaction_states:
                if each.error_code:
                    answers.fail(each.transactional_id, each.error_code)
                else:
                    answers.succeed(each.transactional_id, _described(each, context.broker_id))

        message = DescribeTransactionsRequest(transactional_ids=list(keys))
        yield AdminRequest.of(message, DescribeTransactionsResponse, keys, read)


def _described(state: describe_transactions.TransactionState, coordinator_id: int) -> TransactionDescription:
    started = state.transaction_start_time_ms
    return TransactionDescription(
        coordinator_id,
        TransactionState.of(state.transaction_state),
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if started < 0 else started,
        frozenset(
            TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions
        ),
    )


class DescribeProducers(AdminOperation[TopicPartition, tuple[ProducerState, ...]]):
    """Describes the producers of partitions, as their leaders or one given replica know them."""

    title = "describe producers of"

    def __init__(self, broker_id: int | None) -> None:
        self._route: Final[Route[TopicPartition]] = (
            LEADER_OF_PARTITION if broker_id is None else Broker(lambda _partition: broker_id)
        )

    @property
    def route(self) -> Route[TopicPartition]:
        """The leaders, or the given broker."""
        return self._route

    def requests(
        self, keys: Sequence[TopicPartition], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartition, tuple[ProducerState, ...]]]:
        """Ask one broker for all its partitions."""
        topics = [
            TopicRequest(name=topic, partition_indexes=[each.partition for each in partitions])
            for topic, partitions in by_topic(keys).items()
        ]
        message = DescribeProducersRequest(topics=topics)
        yield AdminRequest.of(message, DescribeProducersResponse, keys, self._read)

    @staticmethod
    def _read(
        response: DescribeProducersResponse, answers: Answers[TopicPartition, tuple[ProducerState, ...]]
    ) -> None:
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    answers.fail(partition, each.error_code, each.error_message)
                else:
                    answers.succeed(partition, tuple(_producer(state) for state in each.active_producers))


def _producer(state: ProducerStateData) -> ProducerState:
    return ProducerState(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        None if state.coordinator_epoch < 0 else state.coordinator_epoch,
        None if state.current_txn_start_offset < 0 else state.current_txn_start_offset,
    )


class AbortTransactions(AdminOperation[AbortTransactionSpec, None]):
    """Writes abort markers for hanging transactions (KIP-664)."""

    title = "abort the transaction of"
    route = _LEADER_OF_SPEC

    def requests(
        self, keys: Sequence[AbortTransactionSpec], context: RequestContext
    ) -> Iterable[AdminRequest[AbortTransactionSpec, None]]:
        """Send one marker in each request: a response names the producer and the partition only."""
        for spec in keys:
            yield self._request(spec)

    @staticmethod
    def _request(spec: AbortTransactionSpec) -> AdminRequest[AbortTransactionSpec, None]:
        topic, partition = spec.topic_partition
        marker = WritableTxnMarker(
            producer_id=spec.producer_id,
            producer_epoch=spec.producer_epoch,
            coordinator_epoch=spec.coordinator_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        )

        def read(response: WriteTxnMarkersResponse, answers: Answers[AbortTransactionSpec, None]) -> None:
            for producer in response.markers:
                for each_topic in producer.topics:
                    for each in each_topic.partitions:
                        if each.error_code:
                            answers.fail(spec, each.error_code)
                        else:
                            answers.succeed(spec, None)

        message = WriteTxnMarkersRequest(markers=[marker])
        return AdminRequest.of(message, WriteTxnMarkersResponse, (spec,), read)


class FenceProducers(AdminOperation[str, ProducerIdAndEpoch]):
    """Raises the epoch of transactional ids, which aborts their transactions and fences their producers."""

    title = "fence producers of"
    route = _COORDINATOR
    retry_codes = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, ProducerIdAndEpoch]]:
        """Send one request for each id."""
        for transactional_id in keys:
            yield self._request(transactional_id, context.timeout_ms)

    @staticmethod
    def _request(transactional_id: str, timeout_ms: int) -> AdminRequest[str, ProducerIdAndEpoch]:
        def read(response: InitProducerIdResponse, answers: Answers[str, ProducerIdAndEpoch]) -> None:
            if response.error_code:
                answers.fail(transactional_id, response.error_code)
            else:
                answers.succeed(
                    transactional_id, ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                )

        # The coordinator writes the new epoch to its log within the transaction time-out.
        message = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        return AdminRequest.of(message, InitProducerIdResponse, (transactional_id,), read)
