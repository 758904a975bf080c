"""Holds the parts of a broker that exist before it is assembled: identity, settings, ZooKeeper session, logs.

`kalda.broker.server` makes a `BrokerContext` once the settings are read and the logs are open. The functions
that build the rest of the broker take it; the objects that they build take the parts that they use.
"""

from dataclasses import dataclass

from kalda.broker.config import ConfigStore
from kalda.broker.metadata.features import Features
from kalda.broker.metadata.registration import BrokerRegistration
from kalda.broker.schemas.schema_validation import SchemaValidation
from kalda.broker.security.broker_access import BrokerAccess
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.history.recording_client import RecordingClient
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.common.metrics import Metrics
from kalda.events.event import NO_EVENTS, EventSink
from kalda.events.recorder import EventRecorder
from kalda.net.peer.dialer import Dialer
from kalda.runtime.clock import Clock
from kalda.runtime.runtime import Runtime
from kalda.settings import BrokerConfig
from kalda.storage.log_manager import LogManager


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The parts that the functions building a broker start from."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    config_store: ConfigStore
    runtime: Runtime
    metrics: Metrics
    cluster_store: ClusterStore
    brokers: RegisteredBrokers
    recording: RecordingClient | None
    """What notes changes for the cluster's history; None where it is off."""
    features: Features
    log_manager: LogManager
    schema_validation: SchemaValidation
    registration: BrokerRegistration
    access: BrokerAccess
    recorder: EventRecorder | None
    """Keeps the events of this broker; None if `kalda.events.bytes` is 0."""
    dialer: Dialer
    """Connects to the inter-broker listener of other brokers."""
    control_plane_dialer: Dialer | None
    """Connects to the listener that ``control.plane.listener.name`` names; None if it names none."""

    @property
    def clock(self) -> Clock:
        """The clock of the runtime."""
        return self.runtime.clock

    @property
    def events(self) -> EventSink:
        """Takes the events of this broker."""
        return NO_EVENTS if self.recorder is None else self.recorder
