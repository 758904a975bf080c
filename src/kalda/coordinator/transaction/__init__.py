"""The transaction coordinator (KIP-98): the state of each transactional id, and how its transactions end.

It reads and changes the state of shards of ``__transaction_state``, which `kalda.coordinator.runtime` loads
and writes. It sends no markers and allocates no producer ids itself: `kalda.broker.transactions` does, behind
the ports in `transaction_coordinator`.
"""
