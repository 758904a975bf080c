"""Holds the admin client's methods on transactions and producers (KIP-664)."""

from collections.abc import Collection, Iterable

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.admin.transactions import (
    AbortTransactionSpec,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kalda.common.types import TopicPartition


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
        from kalda.clients.admin.transaction_calls import ListTransactions

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
        from kalda.clients.admin.transaction_calls import DescribeTransactions

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
        from kalda.clients.admin.transaction_calls import DescribeProducers

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
        from kalda.clients.admin.transaction_calls import AbortTransactions

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
        from kalda.clients.admin.transaction_calls import FenceProducers

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
