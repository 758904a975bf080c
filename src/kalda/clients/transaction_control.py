"""Looks at transactions and ends them from outside of their producers.

The driver of a Spark job uses it: it has the identities of transactions that tasks have prepared, not their
producers. All requests are repeated until they succeed or `BLOCK_MS` is over; each may be repeated by another
process.

A transaction is ended under the identity that a task returned, never under the identity that the coordinator
has at the moment. A coordinator refuses an identity that was replaced, so the transaction of a later task
cannot be ended by mistake.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import (
    BrokerConnectionError,
    BrokerResponseError,
    RequestTimedOutError,
    error_for,
)
from kalda.clients.facade import BlockingClient, blocking
from kalda.clients.loop_thread import LoopThread
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.offset_lookup import by_leader
from kalda.clients.producer.transaction_requests import TIMEOUT_NEVER_MS, TWO_PHASE_COMMIT_VERSION_MIN
from kalda.clients.range_reader.cluster_lookup import ClusterLookup
from kalda.clients.range_reader.leaders import missing_leader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.shared_properties import known_settings
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff, Pacer
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.schema import Message
from kalda.records.control import build_barrier
from kalda.runtime.system.random import SYSTEM_RANDOM

R = TypeVar("R", bound=Message)
T = TypeVar("T")

BLOCK_MS: Final = 60_000
"""As a producer's `max.block.ms`: a coordinator that moves is back long before."""
ENDING_POLL_MS: Final = 10
"""The first wait before the coordinator is asked again whether a transaction's markers are written."""
_TURNS_FREE: Final = 1
"""How often an identity is asked for again at once: after its creation."""
CONCURRENT_ENDS_MAX: Final = 64
"""How many transactions are ended at a time: enough to hide round trips, few enough for a coordinator."""
END_TXN_VERSION: Final = 5
"""The version in which every end raises the epoch (KIP-890): by that a repeated end is recognised."""


PRODUCE_VERSION_V2: Final = 12
"""The version of Produce that adds its partitions to the transaction (KIP-890)."""
NO_ONES_PRODUCER_ID: Final = 2**62
"""Above any id that a cluster allocates."""


class TransactionHandle(NamedTuple):
    """A transaction under the identity that wrote it."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    """The state of a transactional id at its coordinator."""

    state: str
    producer_id: int
    epoch: int

    @property
    def is_open(self) -> bool:
        """Whether records of it are neither committed nor aborted."""
        return self.state == "Ongoing"


class AsyncTransactionControl:
    """Calls to transaction coordinators over connections of its own; they live until `close`.

    Args:
        properties: Settings of a client by Kafka's names; those that only producers know have no effect.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        own = known_settings(LogReaderConfig, properties)
        own.setdefault("retry.backoff.ms", "20")
        self._config: Final = LogReaderConfig.from_properties(own)
        self._client: Final = NetworkClient(self._config, Metadata())
        self._polls: Final = ExponentialBackoff(
            ENDING_POLL_MS, self._config.retry_backoff_max_ms, SYSTEM_RANDOM.uniform
        )
        self._ends: Final = asyncio.Semaphore(CONCURRENT_ENDS_MAX)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def end_all(self, handles: Iterable[TransactionHandle], *, commit: bool) -> None:
        """Commit or abort transactions, and wait until their markers are written.

        A transaction that has ended in the same way before is left as it is. An abort also leaves one that is
        under another identity meanwhile: its producer has been replaced, which aborted it.

        Raises:
            BrokerResponseError: a commit is refused: the transaction was aborted, or another one has begun.
            ClientError: a coordinator did not answer in time.
        """
        handles = list(handles)
        # All are decided before one is waited for, so that their markers are written at the same time.
        await asyncio.gather(*(self._end(each, commit=commit, is_repeat=False) for each in handles))
        await asyncio.gather(*(self._end(each, commit=commit, is_repeat=True) for each in handles))

    async def _end(self, handle: TransactionHandle, *, commit: bool, is_repeat: bool) -> None:
        """Send EndTxn; the repeated one succeeds when the transaction is complete."""
        request = EndTxnRequest(
            transactional_id=handle.transactional_id,
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            committed=commit,
        )
        versioned = VersionedRequest(ApiKey.END_TXN, lambda _: request, version_min=END_TXN_VERSION)

        async def attempt() -> None:
            polls = Pacer(self._polls, 0)
            while True:
                response = await self._to_coordinator(handle.transactional_id, versioned, EndTxnResponse)
                code = ErrorCode(response.error_code)
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                if not is_repeat:
                    # It is ending already; the repeated request finds out how.
                    return
                await asyncio.sleep(polls.seconds())
            if code is ErrorCode.NONE or (not commit and code in _REPLACED):
                return
            # A repeated abort of a transaction that has ended finds nothing to abort.
            if not commit and code is ErrorCode.INVALID_TXN_STATE:
                return
            raise error_for(code, f"{'commit' if commit else 'abort'} of {handle.transactional_id}")

        async with self._ends:
            await self._retry(f"end of {handle.transactional_id}", attempt)

    async def describe(self, transactional_id: str) -> Described | None:
        """Return the coordinator's state of a transactional id; None for an unknown id.

        Raises:
            ClientError: the coordinator did not answer in time, or refused.
        """

        async def attempt() -> Described | None:
            response = await self._to_coordinator(
                transactional_id,
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                DescribeTransactionsResponse,
            )
            (found,) = response.transaction_states
            code = ErrorCode(found.error_code)
            if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            if code is not ErrorCode.NONE:
                self._client.forget_coordinator(transactional_id, CoordinatorType.TRANSACTION)
                raise error_for(code, f"description of {transactional_id}")
            return Described(found.transaction_state, found.producer_id, found.producer_epoch)

        return await self._retry(f"description of {transactional_id}", attempt)

    async def open_transactions(self, prefix: str, without: Collection[str] = ()) -> list[TransactionHandle]:
        """Return the open transactions whose id begins with `prefix`, also prepared ones.

        Those with an id of `without` are left out.

        Raises:
            ClientError: a broker did not answer in time, or refused.
        """

        async def attempt() -> list[TransactionHandle]:
            snapshot = await self._client.refresh_metadata(timeout_ms=self._config.request_timeout_ms)
            listed = await asyncio.gather(*(self._list_open(each, prefix) for each in snapshot.brokers))
            names = sorted({name for names in listed for name in names}.difference(without))
            described = await asyncio.gather(*(self.describe(name) for name in names))
            return [
                TransactionHandle(name, each.producer_id, each.epoch)
                for name, each in zip(names, described, strict=True)
                if each is not None and each.is_open
            ]

        return await self._retry(f"transactions of {prefix}", attempt)

    async def _list_open(self, broker_id: int, prefix: str) -> list[str]:
        request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
        response = await self._client.send(broker_id, request, ListTransactionsResponse)
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            raise error_for(code, f"transactions of broker {broker_id}")
        names = (each.transactional_id for each in response.transaction_states)
        return [name for name in names if name.startswith(prefix)]

    async def shared_identity(self, transactional_id: str) -> TransactionHandle:
        """Return the identity of a producer that several processes use, created where it does not exist.

        It is that of the open transaction, or of the next one: every end raises the epoch (KIP-890).

        Raises:
            ClientError: the coordinator did not answer in time, or allows no two-phase commit.
        """

        async def attempt() -> TransactionHandle:
            turns = Pacer(self._polls, _TURNS_FREE)
            while True:
                found = await self.describe(transactional_id)
                if found is None:
                    await self._create(transactional_id)
                elif not found.state.startswith("Prepare"):
                    return TransactionHandle(transactional_id, found.producer_id, found.epoch)
                await asyncio.sleep(turns.seconds())

        return await self._retry(f"identity of {transactional_id}", attempt)

    async def _create(self, transactional_id: str) -> None:
        """Create a transactional id; without effect where it exists.

        The request names an identity that no producer has, which every coordinator refuses, except where the
        id is new: an InitProducerId without one would raise the epoch and end a transaction (KIP-360).
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_NEVER_MS,
            producer_id=NO_ONES_PRODUCER_ID,
            producer_epoch=0,
            enable2_pc=True,
        )
        versioned = VersionedRequest(
            ApiKey.INIT_PRODUCER_ID, lambda _: request, version_min=TWO_PHASE_COMMIT_VERSION_MIN
        )
        response = await self._to_coordinator(transactional_id, versioned, InitProducerIdResponse)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise error_for(
                code,
                f"creation of {transactional_id}",
                "the brokers allow no two-phase commit; set `transaction.two.phase.commit.enable` to true on "
                "them, or use `delivery`=exactly-once",
            )
        if code not in _EXISTS:
            raise error_for(code, f"creation of {transactional_id}")

    async def write_barrier(self, identity: TransactionHandle, topic: str) -> bool:
        """Write a barrier to each partition of a topic that has none of `identity`.

        Returns:
            Whether all partitions have it; false if the identity's transaction has been ended.

        Raises:
            ClientError: the topic does not exist, a leader did not answer in time, or refused.
        """
        lookup = ClusterLookup(self._client, self._config)
        missing = set(await lookup.topic_partitions([topic]))

        async def attempt() -> bool:
            await lookup.require_topics([topic])
            leaders = by_leader(self._client.metadata.snapshot, missing)
            if leaders.unknown:
                raise missing_leader(self._client.metadata.snapshot, leaders.unknown[0])
            answers = await asyncio.gather(
                *(self._send_barrier(each, identity, found) for each, found in leaders.known.items())
            )
            failed: BrokerResponseError | None = None
            for partition, code in (each for answer in answers for each in answer.items()):
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    missing.discard(partition)
                elif code in _ENDED:
                    return False
                elif code is ErrorCode.INVALID_RECORD:
                    raise error_for(code, f"barrier in {partition}", _NO_BARRIERS)
                else:
                    failed = error_for(code, f"barrier in {partition}")
            if failed is not None:
                raise failed
            return True

        return await lookup.retry(f"barrier of {topic}", attempt)

    async def _send_barrier(
        self, leader_id: int, identity: TransactionHandle, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        batch = build_barrier(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            timestamp=self._client.clock.time_ms(),
        )
        request = ProduceRequest(
            transactional_id=identity.transactional_id,
            acks=-1,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[
                        PartitionProduceData(index=each.partition, records=bytearray(batch)) for each in found
                    ],
                )
                for topic, found in by_topic(partitions).items()
            ],
        )
        # A barrier is for the partitions that are there now, whatever the ids of their topics (version 13).
        versioned = VersionedRequest(
            ApiKey.PRODUCE, lambda _: request, version_max=PRODUCE_VERSION_V2, version_min=PRODUCE_VERSION_V2
        )
        response = await self._client.send(leader_id, versioned, ProduceResponse)
        return {
            TopicPartition(topic.name, each.index): ErrorCode(each.error_code)
            for topic in response.responses
            for each in topic.partition_responses
        }

    async def _to_coordinator(
        self, transactional_id: str, request: Message | VersionedRequest, response_class: type[R]
    ) -> R:
        """Send a request to the coordinator of an id; the next attempt looks for it again after an error."""
        kind = CoordinatorType.TRANSACTION
        node_id = await self._client.coordinator(transactional_id, kind)
        try:
            response = await self._client.send(node_id, request, response_class)
        except (BrokerConnectionError, RequestTimedOutError):
            self._client.forget_coordinator(transactional_id, kind)
            raise
        code = ErrorCode(getattr(response, "error_code", 0))
        if code in _MOVED:
            self._client.forget_coordinator(transactional_id, kind)
            raise error_for(code, f"coordinator of {transactional_id}")
        return response

    async def _retry(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._client.retry(what, attempt, timeout_ms=BLOCK_MS)


class TransactionControl(BlockingClient[AsyncTransactionControl]):
    """The same with blocking calls, on a thread of its own; see `AsyncTransactionControl`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._inner = AsyncTransactionControl(properties)
        self._thread: Final = LoopThread("kalda-transaction-control")

    def close(self) -> None:
        """Close the connections and end the thread."""
        try:
            if self._thread.is_usable:
                self._run(self._inner.close())
        finally:
            self._thread.close()

    describe = blocking(AsyncTransactionControl.describe)
    open_transactions = blocking(AsyncTransactionControl.open_transactions)
    shared_identity = blocking(AsyncTransactionControl.shared_identity)
    write_barrier = blocking(AsyncTransactionControl.write_barrier)
    end_all = blocking(AsyncTransactionControl.end_all)

    def _run(self, coroutine: Coroutine[Any, Any, T], *args: Any, **options: Any) -> T:
        return self._thread.call(coroutine)


_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_NO_BARRIERS: Final = (
    "the brokers accept no barriers, by which a batch becomes visible as a whole; "
    "`delivery`=exactly-once-batch needs brokers of Kalda; use `delivery`=exactly-once"
)
_EXISTS: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
_ENDED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
_REPLACED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
