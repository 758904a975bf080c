"""Holds the parts of a broker that exist before it is assembled: identity, settings, logs, tasks and health.

The functions that build the other parts take a `BrokerContext`. The package does not build it:
`kalda.broker.server` does. It uses `config`, `metadata` and `security`, the logs of `kalda.storage`,
and `kalda.cluster`.
"""
