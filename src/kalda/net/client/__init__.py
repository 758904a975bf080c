"""Connects to a broker: `BrokerConnection`, the choice of versions, logins, errors.

Clients use it, and brokers among themselves; the ZooKeeper client uses its base, `StreamConnection`. It knows
no cluster: `kalda.clients` chooses brokers, keeps metadata and retries.
"""
