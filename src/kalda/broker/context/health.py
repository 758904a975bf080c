"""Reports the phase of a broker and whether it can serve clients, to probes, balancers and the metrics."""

from enum import IntEnum
from typing import Final

from kalda.broker.metadata.registration import BrokerRegistration, RegistrationState
from kalda.common.metrics import Metrics, metric_name


class BrokerState(IntEnum):
    """The phases of a broker's life, with the numbers that Kafka's ``BrokerState`` gauge has for them."""

    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """Leaders are moved to other brokers; clients are still served."""
    SHUTTING_DOWN = 7


class BrokerHealth:
    """The phase of a broker and the readiness that follows from it."""

    def __init__(self, registration: BrokerRegistration) -> None:
        self._registration: Final = registration
        self.state = BrokerState.STARTING

    def enter(self, state: BrokerState) -> None:
        """Enter the next phase."""
        self.state = state

    def unready_reason(self) -> str | None:
        """Return why the broker cannot serve clients, or None if it can.

        A broker is ready while it is registered and has the metadata of the whole cluster. It stays ready
        while it cannot reach ZooKeeper, because it serves from cached metadata: if all brokers were taken out
        of service, an outage of ZooKeeper would become an outage of the cluster.
        """
        if self.state is BrokerState.STARTING:
            return "starting: this broker has not received the cluster's metadata from the controller yet"
        if self.state is not BrokerState.RUNNING:
            return "shutting down"
        if self._registration.state is RegistrationState.NOT_REGISTERED:
            engine = self._registration.engine_name
            return f"not registered: the {engine} session expired, and there is no new one yet"
        return None

    def register_metrics(self, metrics: Metrics) -> None:
        """Publish the phase."""
        metrics.gauge(
            metric_name("kafka.server", "KafkaServer", "BrokerState"),
            "1 starting, 3 running, 6 handing leaders over before the end, 7 shutting down.",
            lambda: self.state,
        )
