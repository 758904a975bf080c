"""Kafka's controller of the ZooKeeper era: elects partition leaders and assigns replicas to brokers.

`core.step` is pure: it takes an event, updates the `ControllerContext` and returns effects.
`ControllerDriver` runs on every broker, takes part in elections and performs the effects of the active
controller's `Term`. The package reads and writes ZooKeeper through `kalda.cluster`, and sends
requests through the `BrokerChannel` port, which `kalda.broker.control_plane.channel` implements. It does not
serve the requests that it sends: `kalda.broker.control_plane.requests` applies them.
"""
