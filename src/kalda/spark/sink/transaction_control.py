"""Looks at transactions and ends them from outside of their producers, with blocking calls.

The driver uses it: it has the identities of transactions that tasks have prepared, not their producers. All
requests are repeated until they succeed or ``max.block.ms`` is over; each may be repeated by another process.

What a maintainer must not break: a transaction is ended under the identity that a task returned, never under
the identity that the coordinator has at the moment. A coordinator refuses an identity that was replaced, so
the transaction of a later task cannot be ended by mistake.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import BrokerConnectionError, RequestTimedOutError, error_for
from kalda.clients.log_reader.log_reader_config import LogReaderConfig
from kalda.clients.loop_thread import LoopThread
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kalda.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kalda.protocol.schema import Message
from kalda.spark.sink.options import settings_of

R = TypeVar("R", bound=Message)
T = TypeVar("T")

BLOCK_MS: Final = 60_000
"""As a producer's `max.block.ms`: a coordinator that moves is back long before."""
ENDING_POLL_S: Final = 0.01
"""The wait before the coordinator is asked again whether a transaction's markers are written."""
CONCURRENT_ENDS_MAX: Final = 64
"""How many transactions are ended at a time: enough to hide round trips, few enough for a coordinator."""
END_TXN_VERSION: Final = 5
"""The version in which every end raises the epoch (KIP-890): by that a repeated end is recognised."""


class TransactionHandle(NamedTuple):
    """A transaction under the identity that wrote it."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    """What a coordinator knows of a transactional id."""

    state: str
    producer_id: int
    epoch: int

    @property
    def is_open(self) -> bool:
        """Whether records of it are neither committed nor aborted."""
        return self.state == "Ongoing"


class TransactionControl:
    """Calls to transaction coordinators over connections of its own; they live until `close`.

    Args:
        properties: Settings of a client by Kafka's names; those that only producers know have no effect.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        own = settings_of(LogReaderConfig, properties)
        own.setdefault("retry.backoff.ms", "20")
        self._config: Final = LogReaderConfig.from_properties(own)
        self._thread: Final = LoopThread("kalda-transaction-control")
        self._client: Final = NetworkClient(self._config, Metadata())
        self._ends: Final = asyncio.Semaphore(CONCURRENT_ENDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread."""
        try:
            if self._thread.is_usable:
                self._thread.call(self._client.close())
        finally:
            self._thread.close()

    def describe(self, transactional_id: str) -> Described | None:
        """Return what the coordinator knows of an id, None for an id that it does not know.

        Raises:
            ClientError: the coordinator did not answer in time, or refused.
        """
        return self._thread.call(self._describe(transactional_id))

    def open_transactions(self, prefix: str) -> list[TransactionHandle]:
        """Return the open transactions whose id begins with `prefix`, also prepared ones.

        Raises:
            ClientError: a broker did not answer in time, or refused.
        """
        return self._thread.call(self._open_transactions(prefix))

    def end_all(self, handles: Iterable[TransactionHandle], *, commit: bool) -> None:
        """Commit or abort transactions, and wait until their markers are written.

        A transaction that has ended in the same way before is left as it is. An abort also leaves one that is
        under another identity meanwhile: its producer has been replaced, which aborted it.

        Raises:
            BrokerResponseError: a commit is refused: the transaction was aborted, or another one has begun.
            ClientError: a coordinator did not answer in time.
        """
        wanted = list(handles)
        self._thread.call(self._end_all(wanted, commit=commit))

    async def _end_all(self, handles: list[TransactionHandle], *, commit: bool) -> None:
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
            while True:
                response = await self._to_coordinator(handle.transactional_id, versioned, EndTxnResponse)
                code = ErrorCode(response.error_code)
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                if not is_repeat:
                    # It is ending already; the repeated request finds out how.
                    return
                await asyncio.sleep(ENDING_POLL_S)
            if code is ErrorCode.NONE or (not commit and code in _REPLACED):
                return
            # A repeated abort of a transaction that has ended finds nothing to abort.
            if not commit and code is ErrorCode.INVALID_TXN_STATE:
                return
            raise error_for(code, f"{'commit' if commit else 'abort'} of {handle.transactional_id}")

        async with self._ends:
            await self._retry(f"end of {handle.transactional_id}", attempt)

    async def _describe(self, transactional_id: str) -> Described | None:
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

    async def _open_transactions(self, prefix: str) -> list[TransactionHandle]:
        async def attempt() -> list[TransactionHandle]:
            snapshot = await self._client.refresh_metadata(timeout_ms=self._config.request_timeout_ms)
            listed = await asyncio.gather(*(self._list_open(each, prefix) for each in snapshot.brokers))
            names = sorted({name for names in listed for name in names})
            described = await asyncio.gather(*(self._describe(name) for name in names))
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


_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
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
