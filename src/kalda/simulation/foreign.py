"""Models brokers of Apache Kafka in ZooKeeper mode among Kalda's: `foreign_broker`, `ForeignSession`.

A model is Kalda's broker with what other brokers see of it changed to what they see of Kafka's:

- It registers without Kalda's mark and without features, and offers the requests and versions of its release
  only, to brokers too.
- It asks the controller to change in-sync replicas (AlterPartition, KIP-497), and from 3.0 on for blocks of
  producer ids (AllocateProducerIds, KIP-730).
- It sends the controller's requests in the versions of its release. Before 2.8 it knows no topic ids: it
  creates topics without one, drops the id of a topic that it writes, and sends and fetches by name.
"""

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from kalda.broker.assembly import BrokerParts, assemble
from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.server import BrokerServer
from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.isr_store import IsrConflict, IsrOutcome, IsrStore, IsrWritten
from kalda.cluster.schema import PartitionState, ProducerIdBlock
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.types import UUID, ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.faults.state import Faults
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kalda.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.releases import versions_of
from kalda.protocol.schema import Message
from kalda.runtime.runtime import Runtime
from kalda.settings import BrokerConfig
from kalda.simulation.releases import RELEASES, knows_topic_ids
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import ConnectionLossError, ZooKeeperError
from kalda.zookeeper.port import (
    ANY_VERSION,
    Create,
    Operation,
    OperationResult,
    SetData,
    Stat,
    ZooKeeperClient,
)

_REQUEST_SECONDS: Final = 5.0

_TOPIC_IDS_FROM: Final = 2
_BROKER_EPOCHS_FROM: Final = 3
"""The first versions of AlterPartition with topic ids and with the epochs of brokers."""


class ForeignSession(EnsembleClient):
    """A session of a broker of another release: what it writes is what that release writes."""

    release: str = RELEASES[-1]

    @override
    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        return await super().create(path, written_by(self.release, path, data), ephemeral, sequential)

    @override
    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await super().set(path, written_by(self.release, path, data), version)

    @override
    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        return await super().multi_many(
            [[self._operation(each) for each in operations] for operations in transactions]
        )

    def _operation(self, operation: Operation) -> Operation:
        if isinstance(operation, (Create, SetData)) and operation.data is not None:
            return replace(operation, data=written_by(self.release, operation.path, operation.data))
        return operation


def written_by(release: str, path: str, data: bytes) -> bytes:
    """Return what a broker of a release writes to a znode for which Kalda's would write `data`."""
    parent = path.rpartition("/")[0]
    if parent == paths.BROKER_IDS:
        return _without(data, "kalda", features={})
    if parent == paths.TOPICS and not knows_topic_ids(release):
        return _without(data, "topic_id", version=2)
    return data


def _without(data: bytes, key: str, **fields: object) -> bytes:
    value = json.loads(data)
    value.pop(key, None)
    return json.dumps(value | fields).encode()


def foreign_broker(
    config: BrokerConfig, session: ForeignSession, runtime: Runtime, faults: Faults | None
) -> BrokerServer:
    """Make the model of a broker of the session's release; `kalda.as.version` has to be that release."""
    release = session.release

    def assemble_foreign(context: BrokerContext, tasks: asyncio.TaskGroup) -> BrokerParts:
        parts = assemble(context, tasks)
        services = parts.services
        services.releases.restricts_brokers = True
        controller = _Controller(parts)
        parts.replication.isr_changes.store = _AskingIsrStore(session, controller, release)
        if ApiKey.ALLOCATE_PRODUCER_IDS in versions_of(release):
            services.producer_ids.cluster = _AskingClusterStore(session, runtime, controller)
        if not knows_topic_ids(release):
            services.topic_admin.new_topic_id = _no_topic_id
        return parts

    dialer = TcpDialer(runtime.network, _CONNECTIONS[release])
    return BrokerServer(
        config, session, runtime=runtime, dialer=dialer, faults=faults, assemble=assemble_foreign
    )


def _no_topic_id() -> UUID:
    return ZERO_UUID


class _Connection(PeerConnection):
    """A connection to another broker in the versions of a release."""

    RELEASE = RELEASES[-1]

    def version_of(self, api_key: ApiKey) -> int:
        """Return the highest version that both sides know."""
        highest = super().version_of(api_key)
        return min(highest, versions_of(self.RELEASE).get(api_key, highest))


class _OldConnection(_Connection):
    RELEASE = RELEASES[0]


_CONNECTIONS: Final[dict[str, type[PeerConnection]]] = {
    each.RELEASE: each for each in (_OldConnection, _Connection)
}


class _Controller:
    """Sends a broker's requests to the controller that its metadata names."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts: Final = parts
        self._link: tuple[BrokerEndpoint, PeerConnection] | None = None
        self._turn: Final = asyncio.Lock()

    @property
    def broker_id(self) -> int:
        """This broker."""
        return self._parts.context.broker_id

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        return self._parts.services.controller.is_active

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._parts.context.registration.broker_epoch

    def topic_id(self, topic: str) -> UUID:
        """Return a topic's id; `ZERO_UUID` if it is not known."""
        return self._parts.services.metadata_cache.topic_id(topic)

    async def ask(self, request: Message, version: int) -> Message:
        """Return the response of the controller.

        Raises:
            ConnectionLossError: there is no controller, or it does not answer; the outcome is unknown.
        """
        async with self._turn:
            try:
                connection = await self._connection()
                return await connection.request(request, timeout_seconds=_REQUEST_SECONDS, version=version)
            except (ConnectionError, MessageError) as error:
                self._close()
                raise ConnectionLossError(str(error)) from error

    def _close(self) -> None:
        if self._link is not None:
            self._link[1].close()
            self._link = None

    async def _connection(self) -> PeerConnection:
        context, cache = self._parts.context, self._parts.services.metadata_cache
        endpoint = cache.endpoint(cache.controller_id, context.config.inter_broker_listener_name)
        if endpoint is None:
            raise ConnectionError(f"controller {cache.controller_id} is not known")
        if self._link is None or self._link[0] != endpoint or self._link[1].is_closed:
            self._close()
            options = DialOptions(client_id=str(context.broker_id), timeout_seconds=_REQUEST_SECONDS)
            self._link = endpoint, await context.dialer.dial(endpoint.host, endpoint.port, options)
        return self._link[1]


class _AskingIsrStore(IsrStore):
    """Has the controller change in-sync replicas."""

    def __init__(self, zookeeper: ZooKeeperClient, controller: _Controller, release: str) -> None:
        super().__init__(zookeeper)
        self._controller: Final = controller
        self._highest: Final = versions_of(release)[ApiKey.ALTER_PARTITION]

    async def write(self, wanted: Sequence[tuple[TopicPartition, PartitionState]]) -> list[IsrOutcome]:
        """Ask for each state over the version that it names; return the outcomes in order."""
        ids = {name.topic: self._controller.topic_id(name.topic) for name, _ in wanted}
        version = self._highest if ZERO_UUID not in ids.values() else min(self._highest, _TOPIC_IDS_FROM - 1)
        request = AlterPartitionRequest(
            broker_id=self._controller.broker_id,
            broker_epoch=self._controller.broker_epoch,
            topics=[
                TopicData(
                    topic_name=name.topic,
                    topic_id=ids[name.topic],
                    partitions=[_partition_data(name.partition, state, version)],
                )
                for name, state in wanted
            ],
        )
        response = await self._controller.ask(request, version)
        assert isinstance(response, AlterPartitionResponse), f"a {type(response).__name__}"
        if response.error_code != ErrorCode.NONE:
            raise ConnectionLossError(f"AlterPartition: {ErrorCode.of(response.error_code).name}")
        names = {topic_id: name for name, topic_id in ids.items()}
        answers = {
            TopicPartition(
                topic.topic_name if version < _TOPIC_IDS_FROM else names[topic.topic_id], each.partition_index
            ): each
            for topic in response.topics
            for each in topic.partitions
        }
        refused = [name for name, _ in wanted if answers[name].error_code != ErrorCode.NONE]
        found = await self.states(refused)
        return [
            IsrConflict(found.get(name))
            if name in found or answers[name].error_code != ErrorCode.NONE
            else IsrWritten(answers[name].partition_epoch)
            for name, _ in wanted
        ]

    async def announce(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: the controller has made the change."""


def _partition_data(index: int, state: PartitionState, version: int) -> PartitionData:
    has_epochs = version >= _BROKER_EPOCHS_FROM
    return PartitionData(
        partition_index=index,
        leader_epoch=state.leader_epoch,
        new_isr=[] if has_epochs else list(state.isr),
        new_isr_with_epochs=[BrokerState(broker_id=each) for each in state.isr] if has_epochs else [],
        leader_recovery_state=int(state.leader_recovering),
        partition_epoch=state.version,
    )


class _AskingClusterStore(ClusterStore):
    """Has the controller give blocks of producer ids."""

    def __init__(self, zookeeper: ZooKeeperClient, runtime: Runtime, controller: _Controller) -> None:
        super().__init__(zookeeper, runtime.clock, runtime.random)
        self._controller: Final = controller

    async def allocate_producer_ids(self, broker_id: int, size: int = 0) -> ProducerIdBlock:
        """Ask for a block; the controller decides its size.

        Raises:
            ZooKeeperError: there is none now.
        """
        del size
        if self._controller.is_here:
            return await super().allocate_producer_ids(broker_id)
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=self._controller.broker_epoch)
        response = await self._controller.ask(request, 0)
        assert isinstance(response, AllocateProducerIdsResponse), f"a {type(response).__name__}"
        if response.error_code != ErrorCode.NONE:
            raise ConnectionLossError(f"AllocateProducerIds: {ErrorCode.of(response.error_code).name}")
        first = response.producer_id_start
        return ProducerIdBlock(broker_id, first, first + response.producer_id_len - 1)
