"""Implements the admin client's operations on topics.

It holds the methods, the values that they take and return, and the requests and responses.
Names of values are those of Java's client. Brokers appear by their ids; `AsyncAdmin.describe_cluster` has
their addresses.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kalda.clients.admin.acls import AclOperation, operations_from_bits
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.configs import ConfigEntry, ConfigSource, ConfigText, config_text
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker, Controller
from kalda.clients.argument_checks import a_type
from kalda.clients.errors import ClientConfigError, ClientError, UnsupportedApiError
from kalda.clients.reprs import fields_html
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import NO_PARTITION_LEADER, UUID, ZERO_UUID, uuid_to_text
from kalda.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kalda.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kalda.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kalda.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from kalda.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

TopicKey: TypeAlias = str | UUID
"""A topic by name or by id."""


@public
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: with counts, or with brokers chosen for each partition.

    Raises:
        ClientConfigError: `replica_assignments` is given besides a count, or does not number its partitions
            from 0.
    """

    name: str
    partitions: int | None = None
    """How many partitions; None takes the broker's `num.partitions` (brokers 2.4 and newer, KIP-464)."""
    replication_factor: int | None = None
    """How many replicas each has; None takes the broker's `default.replication.factor`."""
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    """Broker ids for each partition, the preferred leader first."""
    config: Mapping[str, ConfigText] = field(default_factory=dict)
    """Topic settings by Kafka's names, e.g. ``{"retention.ms": 3_600_000}``."""

    def __post_init__(self) -> None:
        assignments = self.replica_assignments
        if assignments is None:
            return
        if self.partitions is not None or self.replication_factor is not None:
            raise ClientConfigError(
                f"NewTopic {self.name!r} has `replica_assignments` and also `partitions` or "
                "`replication_factor`; give the assignments alone, they imply both counts"
            )
        if sorted(assignments) != list(range(len(assignments))) or not assignments:
            raise ClientConfigError(
                f"NewTopic {self.name!r} assigns the partitions {sorted(assignments)}; "
                "`replica_assignments` must number them 0, 1, 2, … without a gap"
            )


@public
@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of a topic's partitions."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None
    """Broker ids for each added partition, the preferred leader first; None leaves it to the broker."""


@public
@dataclass(frozen=True, slots=True)
class TopicMetadataAndConfig:
    """A created topic. Brokers before 2.4 return no counts and no settings, those before 2.8 no id."""

    topic_id: UUID | None
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, ConfigEntry] | None
    """None if the broker did not return it, for example because the client may not describe settings."""


@public
@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic that exists."""

    name: str
    topic_id: UUID | None
    """None from brokers before 2.8, which have no ids (KIP-516)."""
    is_internal: bool


@public
@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """One partition: leader and replicas, as broker ids."""

    partition: int
    leader_id: int
    """-1 while there is no leader."""
    leader_epoch: int
    """-1 from brokers before 2.2."""
    replicas: tuple[int, ...]
    """The preferred leader first."""
    isr: tuple[int, ...]
    """The replicas that are in sync."""
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    """Replicas outside the ISR that may lead without loss (KIP-966); None without such a list."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None

    @property
    def has_leader(self) -> bool:
        """Whether some broker leads the partition."""
        return self.leader_id != NO_PARTITION_LEADER


@public
@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions in order of number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the topic; None if that was not asked for."""

    _repr_html_ = fields_html


class TopicMethods(AdminMethods):
    """Creates, deletes, lists, describes and grows topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, TopicMetadataAndConfig]:
        """Create topics; the call ends when the brokers know them, or could not in time.

        Args:
            topics: The new topics; of two with the same name, the last one counts.
            validate_only: Check only whether the topics could be created.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By name, the created topic or its error: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR,
            INVALID_CONFIG, POLICY_VIOLATION and others. After REQUEST_TIMED_OUT the topic may appear later.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = CreateTopics(topics, validate_only)
        return await self._run(operation, operation.topics, timeout_ms, outcomes=outcomes)

    async def delete_topics(
        self, topics: Iterable[TopicKey], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, None]:
        """Delete topics with all their records.

        Args:
            topics: Names, or ids as `uuid.UUID` (brokers 2.8 and newer, KIP-516). An id never deletes a topic
                that was created again under the same name.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By name or id, None or the error: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DeleteTopics(), topics, timeout_ms, outcomes=outcomes)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """List the topics that this client may see, by name.

        Args:
            include_internal: Whether ``__consumer_offsets`` and other topics of the brokers are listed.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time.
        """
        listings = await self._run_one(ListTopics(), timeout_ms)
        return {each.name: each for each in listings if include_internal or not each.is_internal}

    async def describe_topics(
        self,
        topics: Iterable[TopicKey],
        *,
        include_authorized_operations: bool = False,
        partitions_per_page: int = 2000,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicKey, TopicDescription]:
        """Describe topics: ids, partitions, leaders, replicas. Topics that do not exist are not created.

        Args:
            topics: Names, or ids as `uuid.UUID` (brokers 3.1 and newer).
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            partitions_per_page: How many partitions one response holds, where the broker answers in pages
                (3.8 and newer, KIP-966); the broker has a limit of its own.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By name or id, the description or the error, e.g. UNKNOWN_TOPIC_OR_PARTITION.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = DescribeTopics(include_authorized_operations, partitions_per_page)
        return await self._run(operation, topics, timeout_ms, outcomes=outcomes)

    async def create_partitions(
        self,
        new_partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Raise the number of partitions of topics. Keys then map to other partitions than before.

        Args:
            new_partitions: By topic, the new total, or a `NewPartitions` that also chooses the brokers.
            validate_only: Check only whether the partitions could be added.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By topic, None or the error: INVALID_PARTITIONS where the total is not above the present one,
            UNKNOWN_TOPIC_OR_PARTITION, REASSIGNMENT_IN_PROGRESS and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        wanted = {
            name: each if isinstance(each, NewPartitions) else NewPartitions(each)
            for name, each in new_partitions.items()
        }
        return await self._run(CreatePartitions(wanted, validate_only), wanted, timeout_ms, outcomes=outcomes)


BROKER_DEFAULT: Final = -1
_DEFAULT_COUNTS_FROM: Final = 4
_DELETE_BY_ID_FROM: Final = 6
_METADATA_BY_ID_FROM: Final = 12
_AUTHORIZED_OPERATIONS_FROM: Final = 8


class CreateTopics(AdminOperation[str, TopicMetadataAndConfig]):
    """Creates topics, or checks that they could be created."""

    title = "create topic"
    route = Controller()

    def __init__(self, topics: Iterable[NewTopic], validate_only: bool) -> None:
        if isinstance(topics, NewTopic | str):
            raise ValueError(f"topics={topics!r} is not allowed: it takes a list of NewTopic")
        self.topics: Final = {_checked_topic(topic).name: topic for topic in topics}
        self._validate_only: Final = validate_only

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, TopicMetadataAndConfig]]:
        """Send all topics in one request."""
        topics = [_creatable(self.topics[name]) for name in keys]
        message = CreateTopicsRequest(
            topics=topics, timeout_ms=context.timeout_ms, validate_only=self._validate_only
        )
        yield AdminRequest.of(message, CreateTopicsResponse, keys, self._read)

    def refusal(self, key: str, context: RequestContext) -> ClientError | None:
        """Refuse topics without counts on brokers before 2.4, which have no defaults (KIP-464)."""
        topic = self.topics[key]
        has_counts = topic.partitions is not None and topic.replication_factor is not None
        if topic.replica_assignments is not None or has_counts:
            return None
        if context.versions.latest(ApiKey.CREATE_TOPICS) >= _DEFAULT_COUNTS_FROM:
            return None
        return UnsupportedApiError(
            f"{self.what(key)}: the broker is older than 2.4 and has no default for `partitions` and "
            "`replication_factor`; give both"
        )

    @staticmethod
    def _read(response: CreateTopicsResponse, answers: Answers[str, TopicMetadataAndConfig]) -> None:
        for each in response.topics:
            if each.error_code:
                answers.fail(each.name, each.error_code, each.error_message)
            else:
                answers.succeed(each.name, _created(each))


def _checked_topic(topic: object) -> NewTopic:
    if not isinstance(topic, NewTopic):
        raise ValueError(f"topics has {topic!r}, {a_type(topic)}; it takes a list of NewTopic")
    return topic


def _creatable(topic: NewTopic) -> CreatableTopic:
    partitions, replicas = topic.partitions, topic.replication_factor
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if partitions is None else partitions,
        replication_factor=BROKER_DEFAULT if replicas is None else replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in sorted((topic.replica_assignments or {}).items())
        ],
        configs=[
            CreatableTopicConfig(name=name, value=config_text(value)) for name, value in topic.config.items()
        ],
    )


def _created(result: CreatableTopicResult) -> TopicMetadataAndConfig:
    is_described = not result.topic_config_error_code and result.num_partitions != BROKER_DEFAULT
    return TopicMetadataAndConfig(
        topic_id=_id_or_none(result.topic_id),
        partitions=result.num_partitions if is_described else None,
        replication_factor=result.replication_factor if is_described else None,
        config=None
        if not is_described or result.configs is None
        else {
            each.name: ConfigEntry(
                each.name, each.value, ConfigSource.of(each.config_source), each.is_sensitive, each.read_only
            )
            for each in result.configs
        },
    )


class DeleteTopics(AdminOperation[TopicKey, None]):
    """Deletes topics by name or id."""

    title = "delete topic"
    route = Controller()

    def requests(
        self, keys: Sequence[TopicKey], context: RequestContext
    ) -> Iterable[AdminRequest[TopicKey, None]]:
        """Send all topics in one request."""
        version = context.versions.latest(ApiKey.DELETE_TOPICS)
        if version >= _DELETE_BY_ID_FROM:
            topics = [
                DeleteTopicState(name=None, topic_id=key)
                if isinstance(key, UUID)
                else DeleteTopicState(name=key)
                for key in keys
            ]
            message = DeleteTopicsRequest(topics=topics, timeout_ms=context.timeout_ms)
        else:
            names = [key for key in keys if isinstance(key, str)]
            message = DeleteTopicsRequest(topic_names=names, timeout_ms=context.timeout_ms)

        def read(response: DeleteTopicsResponse, answers: Answers[TopicKey, None]) -> None:
            asked = set(keys)
            for each in response.responses:
                key: TopicKey = each.topic_id if each.topic_id in asked else each.name or ""
                if each.error_code:
                    answers.fail(key, each.error_code, each.error_message)
                else:
                    answers.succeed(key, None)

        yield AdminRequest.of(message, DeleteTopicsResponse, keys, read)

    def refusal(self, key: TopicKey, context: RequestContext) -> ClientError | None:
        """Refuse ids on brokers before 2.8."""
        version = context.versions.latest(ApiKey.DELETE_TOPICS)
        return _refused_id(self.what(key), key, "2.8") if version < _DELETE_BY_ID_FROM else None

    @override
    def what(self, key: TopicKey) -> str:
        return f"{self.title} {topic_text(key)}"


class CreatePartitions(AdminOperation[str, None]):
    """Adds partitions to topics."""

    title = "create partitions of"
    route = Controller()

    def __init__(self, new_partitions: Mapping[str, NewPartitions], validate_only: bool) -> None:
        self._new_partitions: Final = new_partitions
        self._validate_only: Final = validate_only

    def requests(self, keys: Sequence[str], context: RequestContext) -> Iterable[AdminRequest[str, None]]:
        """Send all topics in one request."""
        message = CreatePartitionsRequest(
            topics=[self._topic(name, self._new_partitions[name]) for name in keys],
            timeout_ms=context.timeout_ms,
            validate_only=self._validate_only,
        )
        yield AdminRequest.of(message, CreatePartitionsResponse, keys, self._read)

    @staticmethod
    def _topic(name: str, new: NewPartitions) -> CreatePartitionsTopic:
        assignments = None
        if new.new_assignments is not None:
            assignments = [
                CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.new_assignments
            ]
        return CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments)

    @staticmethod
    def _read(response: CreatePartitionsResponse, answers: Answers[str, None]) -> None:
        for each in response.results:
            if each.error_code:
                answers.fail(each.name, each.error_code, each.error_message)
            else:
                answers.succeed(each.name, None)


class ListTopics(AdminOperation[None, list[TopicListing]]):
    """Lists all topics. Its only key is None."""

    title = "list topics"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, list[TopicListing]]]:
        """Ask for the metadata of all topics."""
        message = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        yield AdminRequest.of(message, MetadataResponse, keys, self._read)

    @staticmethod
    def _read(response: MetadataResponse, answers: Answers[None, list[TopicListing]]) -> None:
        listings = [
            TopicListing(each.name or "", _id_or_none(each.topic_id), each.is_internal)
            for each in response.topics
        ]
        answers.succeed(None, sorted(listings, key=lambda listing: listing.name))

    @override
    def what(self, key: None) -> str:
        return self.title


class DescribeTopics(AdminOperation[TopicKey, TopicDescription]):
    """Describes topics by name or id.

    Names go page by page to brokers that know DescribeTopicPartitions (3.8 and newer), which also returns the
    eligible leader replicas (KIP-966). Ids, and names on older brokers, go with a Metadata request.
    """

    title = "describe topic"
    route = AnyBroker()

    def __init__(self, include_authorized_operations: bool, partitions_per_page: int) -> None:
        self._include_authorized_operations: Final = include_authorized_operations
        self._partitions_per_page: Final = partitions_per_page
        # The partitions of the pages so far, and where the next page begins.
        self._pages: Final[dict[str, list[TopicPartitionInfo]]] = {}
        self._cursor: Cursor | None = None

    def requests(
        self, keys: Sequence[TopicKey], context: RequestContext
    ) -> Iterable[AdminRequest[TopicKey, TopicDescription]]:
        """Ask by name and by id separately."""
        names = sorted(key for key in keys if isinstance(key, str))  # the order of the pages
        ids = [key for key in keys if isinstance(key, UUID)]
        if names and context.versions.supports(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
            yield self._page(names)
        elif names:
            yield self._metadata([MetadataRequestTopic(name=name) for name in names], names, context)
        if ids:
            topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
            yield self._metadata(topics, ids, context)

    def refusal(self, key: TopicKey, context: RequestContext) -> ClientError | None:
        """Refuse ids on brokers before 3.1."""
        version = context.versions.latest(ApiKey.METADATA)
        return _refused_id(self.what(key), key, "3.1") if version < _METADATA_BY_ID_FROM else None

    def _page(self, names: list[str]) -> AdminRequest[TopicKey, TopicDescription]:
        message = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=self._partitions_per_page,
            cursor=self._cursor,
        )

        def read(
            response: DescribeTopicPartitionsResponse, answers: Answers[TopicKey, TopicDescription]
        ) -> None:
            before, cursor = self._cursor, response.next_cursor
            self._cursor = cursor
            for topic in response.topics:
                self._take_page(topic, cursor, answers)
            if cursor is not None and not _is_ahead(cursor, before):
                # Pages of a broker that names no later one would be asked for again and again.
                for name in names:
                    answers.fail(name, ErrorCode.UNKNOWN_SERVER_ERROR, "The pages of partitions do not end.")
            elif cursor is not None:
                for name in names:
                    if name >= cursor.topic_name:
                        answers.ask_again(name)

        keys: Sequence[TopicKey] = names
        return AdminRequest.of(message, DescribeTopicPartitionsResponse, keys, read)

    def _take_page(
        self,
        topic: DescribeTopicPartitionsResponseTopic,
        cursor: Cursor | None,
        answers: Answers[TopicKey, TopicDescription],
    ) -> None:
        name = topic.name or ""
        if topic.error_code:
            answers.fail(name, topic.error_code)
            return
        partitions = self._pages.setdefault(name, [])
        partitions += [_partition_of_page(each) for each in topic.partitions]
        if cursor is not None and cursor.topic_name == name:
            return
        description = TopicDescription(
            name,
            _id_or_none(topic.topic_id),
            topic.is_internal,
            tuple(sorted(partitions, key=lambda each: each.partition)),
            self._operations(topic.topic_authorized_operations),
        )
        answers.succeed(name, description)

    def _metadata(
        self, topics: list[MetadataRequestTopic], keys: Sequence[TopicKey], context: RequestContext
    ) -> AdminRequest[TopicKey, TopicDescription]:
        include = self._include_authorized_operations
        if include and context.versions.latest(ApiKey.METADATA) < _AUTHORIZED_OPERATIONS_FROM:
            raise UnsupportedApiError(
                "describe topics: the broker is older than 2.3 and returns no authorised operations; "
                "call without `include_authorized_operations`"
            )
        message = MetadataRequest(
            topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=include
        )

        def read(response: MetadataResponse, answers: Answers[TopicKey, TopicDescription]) -> None:
            asked = set(keys)
            for topic in response.topics:
                key: TopicKey = topic.topic_id if topic.topic_id in asked else topic.name or ""
                if topic.error_code:
                    answers.fail(key, topic.error_code)
                else:
                    answers.succeed(key, self._described(topic))

        return AdminRequest.of(message, MetadataResponse, keys, read)

    def _described(self, topic: MetadataResponseTopic) -> TopicDescription:
        partitions = [
            TopicPartitionInfo(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in topic.partitions
        ]
        return TopicDescription(
            topic.name or "",
            _id_or_none(topic.topic_id),
            topic.is_internal,
            tuple(sorted(partitions, key=lambda each: each.partition)),
            self._operations(topic.topic_authorized_operations),
        )

    def _operations(self, bits: int) -> frozenset[AclOperation] | None:
        return operations_from_bits(bits) if self._include_authorized_operations else None

    @override
    def what(self, key: TopicKey) -> str:
        return f"{self.title} {topic_text(key)}"


def topic_text(key: TopicKey) -> str:
    """Write a topic for a message: its name, or its id in Kafka's form."""
    return f"with id {uuid_to_text(key)}" if isinstance(key, UUID) else key


def _partition_of_page(partition: DescribeTopicPartitionsResponsePartition) -> TopicPartitionInfo:
    eligible, last_known = partition.eligible_leader_replicas, partition.last_known_elr
    return TopicPartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        None if eligible is None else tuple(eligible),
        None if last_known is None else tuple(last_known),
    )


def _id_or_none(topic_id: UUID) -> UUID | None:
    return None if topic_id == ZERO_UUID else topic_id


def _is_ahead(cursor: Cursor, before: Cursor | None) -> bool:
    return before is None or (cursor.topic_name, cursor.partition_index) > (
        before.topic_name,
        before.partition_index,
    )


def _refused_id(what: str, key: TopicKey, release: str) -> ClientError | None:
    if isinstance(key, str):
        return None
    return UnsupportedApiError(f"{what}: brokers before {release} take no topic ids; use the name")
