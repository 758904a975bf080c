"""Compares coordinators of transactions with leaders while a simulation runs: `OpenTransactions`.

What it checks: a transaction that its coordinator calls complete is open at no leader, since every leader has
its marker before.
"""

from collections.abc import Iterable
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.topics.topic_names import TRANSACTION_STATE_TOPIC
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.simulation.cluster import SimulatedCluster
from kalda.simulation.history import History
from kalda.storage.producer_state_entry import NO_TRANSACTION

_CLOSED: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class OpenTransactions:
    """Looks at the coordinators and at the leaders' states of producers."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster: Final = cluster
        self._history: Final = history

    def look(self, leaders: Iterable[tuple[int, Partition]]) -> None:
        """Compare once.

        Args:
            leaders: Brokers with the partitions that they lead in the newest epoch.
        """
        led = [(broker_id, partition) for broker_id, partition in leaders if not partition.is_offline]
        closed: dict[int, str] = {}
        for broker_id, partition in led:
            name = partition.topic_partition
            if name.topic == TRANSACTION_STATE_TOPIC:
                coordinator = self._cluster.servers[broker_id].services.transaction_coordinator
                for each in coordinator.transactions():
                    if each.state not in _CLOSED:
                        continue
                    if coordinator.partition_for(each.transactional_id) == name.partition:
                        closed[each.producer_id] = each.transactional_id
        for broker_id, partition in led if closed else ():
            producers = partition.log.producer_state.producers
            # What a loss of power took comes back from the other replicas later.
            if not producers or self._cluster.machine(broker_id).disk.power_losses:
                continue
            for producer_id in closed.keys() & producers.keys():
                first = producers[producer_id].current_transaction_first_offset
                if first != NO_TRANSACTION:
                    self._history.violate(
                        "a complete transaction has its markers",
                        f"{closed[producer_id]} is complete, and open in "
                        f"{partition.topic_partition} on its leader {broker_id} from offset {first} on",
                    )
