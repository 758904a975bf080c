"""What no Python client sends: transactions V2, two-phase commit, verification, hanging transactions."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

import pytest

from kalda.broker.metadata.features import TRANSACTION_VERSION
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from kalda.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kalda.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kalda.protocol.schema import Message
from kalda.records.record import RecordBatchBuilder
from tests.integration.cluster.helpers import shared_cluster
from tests.integration.groups.members import wait_until
from tests.integration.transactions.clients import read_all
from tests.integration.transactions.conftest import PARTITIONS, SETTINGS

M = TypeVar("M", bound=Message)
MakeTopic = Callable[[str], str]
NONE = ErrorCode.NONE
TIMEOUT_SECONDS = 30.0


class RawProducer:
    """A producer that sends what it is told to, right or wrong."""

    def __init__(self, connection: PeerConnection, topic: str) -> None:
        self._connection = connection
        self.topic = topic
        self.transactional_id = f"raw-{uuid.uuid4().hex[:10]}"
        self.identity = Identity(-1, -1)
        self._sequences: dict[tuple[Identity, int], int] = {}

    async def ask(self, request: Message, answer: type[M], version: int | None = None) -> M:
        response = await self._connection.request(request, timeout_seconds=TIMEOUT_SECONDS, version=version)
        assert isinstance(response, answer)
        return response

    async def begin(self, *, two_phase: bool = False, keep: bool = False) -> InitProducerIdResponse:
        """Begin, however often the broker asks to try again."""
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        while (await self.ask(find, FindCoordinatorResponse)).coordinators[0].error_code:
            pass
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=60_000,
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        while True:
            response = await self.ask(request, InitProducerIdResponse, 6)
            if response.error_code not in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            ):
                break
        if not response.error_code:
            self.identity = Identity(response.producer_id, response.producer_epoch)
        return response

    async def add(self, *partitions: int) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))],
        )
        while True:
            response = await self.ask(request, AddPartitionsToTxnResponse, 3)
            (topic,) = response.results_by_topic_v3_and_below
            codes = [each.partition_error_code for each in topic.results_by_partition]
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes:
                return codes

    async def send(self, value: str, *, partition: int = 0, version: int = 11) -> int:
        """Send one record; return the error, after trying again where that may help."""
        key = (self.identity, partition)
        builder = RecordBatchBuilder(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self._sequences.get(key, 0),
            is_transactional=True,
        )
        builder.append(None, value.encode(), 1_000)
        data = PartitionProduceData(index=partition, records=bytes(builder.build()))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        while True:
            response = await self.ask(request, ProduceResponse, version)
            code = response.responses[0].partition_responses[0].error_code
            if code != ErrorCode.NOT_ENOUGH_REPLICAS:
                break
        if not code:
            self._sequences[key] = self._sequences.get(key, 0) + 1
        return code

    async def end(self, *, commit: bool, version: int = 5) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )
        response = await self.ask(request, EndTxnResponse, version)
        if not response.error_code and version >= 5:
            self.identity = Identity(response.producer_id, response.producer_epoch)
        return response.error_code

    async def describe(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        return (await self.ask(request, DescribeTransactionsResponse)).transaction_states[0]

    async def producers(self, partition: int = 0) -> list[ProducerState]:
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=self.topic, partition_indexes=[partition])]
        )
        response = await self.ask(request, DescribeProducersResponse)
        (only,) = response.topics[0].partitions
        assert NONE == only.error_code
        return only.active_producers

    async def mark(self, *, commit: bool, coordinator_epoch: int, epoch: int | None = None) -> int:
        """Write a marker to partition 0, as a coordinator or the tool does."""
        marker = WritableTxnMarker(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch if epoch is None else epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=self.topic, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
        )
        response = await self.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        return response.markers[0].topics[0].partitions[0].error_code


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a cluster of one in which two-phase commit is allowed."""
    settings = SETTINGS | {"transaction.two.phase.commit.enable": "true"}
    with shared_cluster(tmp_path_factory.mktemp("two-phase"), brokers=1, settings=settings) as address:
        yield address


@pytest.fixture
async def producer(bootstrap: str, make_topic: MakeTopic) -> AsyncIterator[RawProducer]:
    host, _, port = bootstrap.rpartition(":")
    connection = await TcpDialer().dial(
        host, int(port), DialOptions(client_id="raw", timeout_seconds=TIMEOUT_SECONDS)
    )
    yield RawProducer(connection, make_topic(bootstrap))
    connection.close()


def committed(bootstrap: str, topic: str) -> list[str]:
    return sorted(read_all(bootstrap, topic, PARTITIONS, committed=True))


async def test_the_second_protocol_is_announced(producer: RawProducer) -> None:
    response = await producer.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse
    )
    finalised = {each.name: each.max_version_level for each in response.finalized_features}
    assert 2 == finalised[TRANSACTION_VERSION]


async def test_transactions_v2_add_partitions_by_themselves_and_raise_the_epoch(
    bootstrap: str, producer: RawProducer
) -> None:
    await producer.begin()
    for number, commit in enumerate((True, False, True)):
        assert Identity(producer.identity.producer_id, number) == producer.identity
        for partition in (0, 1):
            assert NONE == await producer.send(f"{number}-{partition}", partition=partition, version=12)
        assert NONE == await producer.end(commit=commit)
    expected = ["0-0", "0-1", "2-0", "2-1"]
    wait_until(lambda: committed(bootstrap, producer.topic) == expected, "what was committed")


async def test_the_end_of_an_epoch_shuts_its_batches_out(producer: RawProducer) -> None:
    """What was under way when the transaction ended must not begin the next one (KIP-890)."""
    await producer.begin()
    assert NONE == await producer.send("a", version=12)
    old = producer.identity
    assert NONE == await producer.end(commit=True)
    producer.identity = old
    assert ErrorCode.INVALID_PRODUCER_EPOCH == await producer.send("late", version=12)


async def test_offsets_are_committed_in_a_transaction_v2(producer: RawProducer) -> None:
    await producer.begin()
    position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=f"group-{uuid.uuid4().hex[:8]}",
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=producer.topic, partitions=[position])],
    )
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[request.group_id])
    while (await producer.ask(find, FindCoordinatorResponse)).coordinators[0].error_code:
        pass
    while True:
        response = await producer.ask(request, TxnOffsetCommitResponse, 4)
        code = response.topics[0].partitions[0].error_code
        if code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            break
    assert ErrorCode.TRANSACTION_ABORTABLE == code, "the group was not added"
    response = await producer.ask(request, TxnOffsetCommitResponse, 5)
    assert NONE == response.topics[0].partitions[0].error_code
    assert ["__consumer_offsets"] == [each.topic for each in (await producer.describe()).topics]
    assert NONE == await producer.end(commit=True)


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_a_partition_that_was_not_added_is_refused(
    producer: RawProducer, version: int, code: ErrorCode
) -> None:
    await producer.begin()
    assert [NONE] == await producer.add(1)
    assert code == await producer.send("a", version=version)
    assert NONE == await producer.send("a", partition=1, version=version)
    assert NONE == await producer.end(commit=False, version=4)


async def test_partitions_are_added_all_or_none(producer: RawProducer) -> None:
    await producer.begin()
    assert [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == await producer.add(
        0, 77
    )


async def test_internal_topics_are_added_by_the_broker_only(producer: RawProducer) -> None:
    """A client could have markers written into the log of the coordinator itself."""
    await producer.begin()
    topic, producer.topic = producer.topic, "__transaction_state"
    assert [ErrorCode.TOPIC_AUTHORIZATION_FAILED] == await producer.add(0)
    producer.topic = topic
    assert "Empty" == (await producer.describe()).transaction_state


@pytest.mark.parametrize("verify_only", [True, False])
async def test_brokers_add_no_partitions_that_do_not_exist(producer: RawProducer, verify_only: bool) -> None:
    """Their markers could not be written, and the end of the transaction would be held up."""
    await producer.begin()
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=producer.topic, partitions=[0, 77])],
    )
    response = await producer.ask(
        AddPartitionsToTxnRequest(transactions=[transaction]), AddPartitionsToTxnResponse, 5
    )
    (result,) = response.results_by_transaction
    assert [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == [
        each.partition_error_code for each in result.topic_results[0].results_by_partition
    ]
    assert "Empty" == (await producer.describe()).transaction_state


async def test_offsets_of_a_group_without_a_name_are_refused(producer: RawProducer) -> None:
    await producer.begin()
    position = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id="",
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=producer.topic, partitions=[position])],
    )
    response = await producer.ask(request, TxnOffsetCommitResponse, 5)
    assert ErrorCode.INVALID_GROUP_ID == response.topics[0].partitions[0].error_code
    assert "Empty" == (await producer.describe()).transaction_state


async def test_a_prepared_transaction_survives_its_producer(bootstrap: str, producer: RawProducer) -> None:
    """KIP-939: whoever owns the outer transaction decides, with the producer that comes after."""
    await producer.begin(two_phase=True)
    assert NONE == await producer.send("prepared", version=12)
    prepared = producer.identity
    answer = await producer.begin(two_phase=True, keep=True)
    assert prepared == Identity(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
    assert "Ongoing" == (await producer.describe()).transaction_state
    assert [] == committed(bootstrap, producer.topic)
    assert NONE == await producer.end(commit=True)
    wait_until(lambda: committed(bootstrap, producer.topic) == ["prepared"], "what was prepared")
    while (code := await producer.send("next", version=12)) == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    assert NONE == code
    assert NONE == await producer.end(commit=True)


async def test_markers_of_a_coordinator_that_was_replaced_are_refused(producer: RawProducer) -> None:
    await producer.begin()
    assert [NONE] == await producer.add(0)
    assert NONE == await producer.send("a")
    assert NONE == await producer.mark(commit=True, coordinator_epoch=7)
    assert ErrorCode.TRANSACTION_COORDINATOR_FENCED == await producer.mark(commit=True, coordinator_epoch=6)
    assert NONE == await producer.mark(commit=True, coordinator_epoch=7)
    (state,) = await producer.producers()
    assert (7, -1) == (state.coordinator_epoch, state.current_txn_start_offset)


async def test_a_hanging_transaction_is_found_and_aborted(bootstrap: str, producer: RawProducer) -> None:
    """As ``kafka-transactions.sh abort`` does it: a marker with what DescribeProducers told."""
    await producer.begin()
    assert [NONE] == await producer.add(0)
    assert NONE == await producer.send("hanging")
    (state,) = await producer.producers()
    assert producer.identity == Identity(state.producer_id, state.producer_epoch)
    assert (0, 0) == (state.last_sequence, state.current_txn_start_offset)
    assert NONE == await producer.mark(commit=False, coordinator_epoch=state.coordinator_epoch)
    (state,) = await producer.producers()
    assert -1 == state.current_txn_start_offset
    assert [] == committed(bootstrap, producer.topic)
    assert ["hanging"] == read_all(bootstrap, producer.topic, PARTITIONS, committed=False)


async def test_transactions_are_listed_and_described(producer: RawProducer) -> None:
    await producer.begin()
    assert [NONE, NONE] == await producer.add(0, 2)
    state = await producer.describe()
    assert (NONE, "Ongoing", 60_000) == (
        state.error_code,
        state.transaction_state,
        state.transaction_timeout_ms,
    )
    assert [(producer.topic, [0, 2])] == [(each.topic, each.partitions) for each in state.topics]

    async def listed(**filters: object) -> set[str]:
        request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]  # each test names its own
        response = await producer.ask(request, ListTransactionsResponse, 2)
        assert NONE == response.error_code
        return {each.transactional_id for each in response.transaction_states}

    name, producer_id = producer.transactional_id, producer.identity.producer_id
    assert name in await listed()
    assert name in await listed(state_filters=["Ongoing"], producer_id_filters=[producer_id])
    assert name not in await listed(state_filters=["Empty"])
    assert name not in await listed(producer_id_filters=[producer_id + 10**6])
    assert name not in await listed(duration_filter=3_600_000)
    assert name in await listed(transactional_id_pattern=f"raw-.*{name[-3:]}")
    assert name in await listed(transactional_id_pattern="")
    assert name not in await listed(transactional_id_pattern="raw"), "it has to match as a whole"
    response = await producer.ask(
        ListTransactionsRequest(transactional_id_pattern="("), ListTransactionsResponse, 2
    )
    assert ErrorCode.INVALID_REGULAR_EXPRESSION == response.error_code
    response = await producer.ask(ListTransactionsRequest(state_filters=["Odd"]), ListTransactionsResponse, 1)
    assert ["Odd"] == response.unknown_state_filters
    request = DescribeTransactionsRequest(transactional_ids=["nobody"])
    (unknown,) = (await producer.ask(request, DescribeTransactionsResponse)).transaction_states
    assert ErrorCode.TRANSACTIONAL_ID_NOT_FOUND == unknown.error_code
