"""Whether a broker lives and whether it can serve clients: for probes, balancers and the metrics."""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kalda.broker.registration import RegistrationState
from kalda.common.metrics import Metrics, metric_name

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

__all__ = ["BrokerHealth", "BrokerState"]


class BrokerState(IntEnum):
    """The phases of a broker's life, with the numbers that Kafka's ``BrokerState`` gauge has for them."""

    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """Leaders are moved to other brokers; clients are still served."""
    SHUTTING_DOWN = 7


class BrokerHealth:
    """What phase a broker is in, which `BrokerServer` sets, and what that means for its readiness."""

    def __init__(self, services: "BrokerServices") -> None:
        self._services: Final = services
        self.state = BrokerState.STARTING

    def unready_reason(self) -> str | None:
        """Return why the broker cannot serve clients, or None if it can.

        It is ready while it is registered and has the whole cluster's metadata. A broker that cannot reach
        coordination stays ready: it serves from what it knows, and if all brokers were taken out of service
        for that, an outage of coordination would become one of everything.
        """
        if self.state is BrokerState.STARTING:
            return "starting: this broker has not received the cluster's metadata from the controller yet"
        if self.state is not BrokerState.RUNNING:
            return "shutting down"
        if self._services.registration.state is RegistrationState.NOT_REGISTERED:
            return "not registered: the session with coordination expired, and there is no new one yet"
        return None

    def register_metrics(self, metrics: Metrics) -> None:
        """Publish the phase."""
        metrics.gauge(
            metric_name("kafka.server", "KafkaServer", "BrokerState"),
            "1 starting, 3 running, 6 handing leaders over before the end, 7 shutting down.",
            lambda: self.state,
        )
