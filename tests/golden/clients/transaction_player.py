"""Plays commands on a `TransactionManager` as a sender, an application and a coordinator would give them.

Commands: ``producer ID [2pc] [no-bump]``, ``features LEVEL``; the calls of the API; ``append PARTITION
COUNT``; ``round`` (one round of the sender); ``answer ...``, ``lost``, ``unsupported`` and ``no-coordinator
CODE`` for the request under way; ``acked``, ``refused`` and ``expired`` for the first batch of a partition in
flight.
"""

from dataclasses import dataclass, field

from kalda.clients.errors import ClientError, RequestTimedOutError, UnsupportedApiError, error_for
from kalda.clients.producer.producer_identity import NO_PRODUCER, PreparedTxnState, ProducerIdAndEpoch
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TransactionResult,
    TxnOffsetCommit,
)
from kalda.clients.producer.txn_partition_map import last_sequence
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kalda.protocol.messages.end_txn import EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kalda.protocol.schema import Message


@dataclass(eq=False)
class Batch:
    """The part of a `ProducerBatch` that the transaction manager sees."""

    topic_partition: TopicPartition
    record_count: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    sequence_has_been_reset: bool = False
    is_in_request: bool = False
    may_be_written: bool = False
    is_out_of_order: bool = False

    def reset_producer_state(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        self.producer_id, self.producer_epoch = identity
        self.base_sequence = base_sequence
        self.sequence_has_been_reset = True

    def __str__(self) -> str:
        return (
            f"{self.topic_partition} {self.base_sequence}-{last_sequence(self)} "
            f"by {self.producer_id}/{self.producer_epoch}"
        )


@dataclass
class Player:
    """One producer, its accumulator and what is in flight."""

    manager: TransactionManager = field(default_factory=TransactionManager)
    queued: list[Batch] = field(default_factory=list)
    in_flight: list[Batch] = field(default_factory=list)
    request: TransactionRequest | None = None
    features_epoch: int = 0
    next_offset: int = 0
    lines: list[str] = field(default_factory=list)

    def play(self, commands: list[str]) -> list[str]:
        return [line for command in commands for line in self.run(command)]

    def run(self, command: str) -> list[str]:
        words = command.split()
        before = self.manager.state
        self.lines = []
        try:
            getattr(self, f"do_{words[0].replace('-', '_')}")(*words[1:])
        except ClientError as error:
            self.lines.append(f"raises {describe(error)}")
        if self.manager.state is not before:
            self.lines.append(f"state {self.manager.state.name}")
            if self.manager.last_error is not None:
                self.lines.append(f"error {describe(self.manager.last_error)}")
        return [f"{command}:", *(f"  {line}" for line in self.lines or ["nothing"])]

    # The application.

    def do_producer(self, transactional_id: str, *options: str) -> None:
        self.__init__(  # type: ignore[misc]  # a transcript may have several producers
            TransactionManager(
                None if transactional_id == "-" else transactional_id,
                enables_two_phase_commit="2pc" in options,
            )
        )
        self.manager.note_node_versions(
            coordinator_bumps_epochs="no-bump" not in options, features_epoch=-1, transaction_version=0
        )

    def do_features(self, level: str) -> None:
        self.features_epoch += 1
        self.manager.note_node_versions(
            coordinator_bumps_epochs=None,
            features_epoch=self.features_epoch,
            transaction_version=int(level),
        )

    def do_init(self, *options: str) -> None:
        self.watch(self.manager.initialize_transactions(keep_prepared="keep" in options))

    def do_begin(self) -> None:
        self.manager.begin_transaction()

    def do_commit(self) -> None:
        self.watch(self.manager.begin_commit())

    def do_abort(self) -> None:
        self.watch(self.manager.begin_abort())

    def do_prepare(self) -> None:
        self.lines.append(f"prepared {self.manager.prepare_transaction()}")

    def do_complete(self, token: str = "") -> None:
        self.watch(self.manager.begin_completion(PreparedTxnState.parse(token)))

    def do_offsets(self, group: str, *offsets: str) -> None:
        positions = {
            partition(each.split("=")[0]): OffsetAndMetadata(int(each.split("=")[1])) for each in offsets
        }
        self.watch(self.manager.send_offsets_to_transaction(positions, ConsumerGroupMetadata(group)))

    def do_append(self, name: str, count: str) -> None:
        self.manager.maybe_add_partition(partition(name))
        self.queued.append(Batch(partition(name), int(count)))

    def do_close(self) -> None:
        self.manager.close()

    # The sender.

    def do_round(self) -> None:
        manager = self.manager
        manager.maybe_resolve_sequences()
        if manager.has_fatal_error:
            self.drop("has a fatal error")
            return
        manager.bump_idempotent_epoch_and_reset_id_if_needed()
        if manager.is_aborting or manager.has_abortable_error:
            self.drop("was aborted")
        if self.request is None:
            self.request = manager.next_request(bool(self.queued or self.in_flight))
        if self.request is None:
            self.drain()
        else:
            self.lines.append(show(self.request))

    def drain(self) -> None:
        manager = self.manager
        for batch in list(self.queued):
            where = batch.topic_partition
            if not manager.is_send_to_partition_allowed(where) or not manager.has_producer_id:
                continue
            if batch.base_sequence < 0:
                if manager.sequences.is_unresolved(where):
                    continue
                manager.maybe_update_identity(where)
                entry = manager.sequences.entry(where)
                if entry.identity != manager.identity:
                    continue
                batch.reset_producer_state(entry.identity, entry.next_sequence)
                batch.sequence_has_been_reset = False
                entry.increment_sequence(batch.record_count)
                entry.add_in_flight(batch)
            self.queued.remove(batch)
            self.in_flight.append(batch)
            self.lines.append(f"batch {batch}")

    def drop(self, why: str) -> None:
        for batch in self.queued:
            if batch.base_sequence >= 0:
                self.manager.sequences.remove_in_flight(batch)
            self.lines.append(f"dropped {batch.topic_partition}: {why}")
        self.queued.clear()

    # Brokers.

    def do_acked(self, name: str) -> None:
        batch = self.first(name)
        self.manager.handle_completed_batch(batch, self.next_offset)
        self.next_offset += batch.record_count

    def do_refused(self, name: str, code: str, log_start: str = "-1") -> None:
        batch = self.first(name)
        if self.manager.can_retry(ErrorCode[code], batch, int(log_start)):
            self.lines.append("sent again")
            self.queued.append(batch)
            self.queued.sort(key=lambda each: (each.base_sequence < 0, each.base_sequence))
        else:
            self.lines.append("failed")
            error = error_for(ErrorCode[code], name)
            self.manager.handle_failed_batch(batch, error, adjusts_sequences=True)

    def do_expired(self, name: str) -> None:
        batch = self.first(name)
        self.manager.handle_failed_batch(
            batch, RequestTimedOutError(f"{name} expired"), adjusts_sequences=False
        )
        self.manager.sequences.mark_unresolved(batch)

    def first(self, name: str) -> Batch:
        batch = next(each for each in self.in_flight if each.topic_partition == partition(name))
        self.in_flight.remove(batch)
        return batch

    def do_lost(self) -> None:
        self.manager.handle_failure(self.take(), RequestTimedOutError("the connection was lost"))

    def do_unsupported(self) -> None:
        self.manager.handle_failure(self.take(), UnsupportedApiError("broker b:9092 offers versions 0 to 2"))

    def do_no_coordinator(self, code: str) -> None:
        self.manager.handle_coordinator_error(self.take(), error_for(ErrorCode[code], "the coordinator"))

    def do_answer(self, *words: str) -> None:
        request = self.take()
        self.manager.handle_response(request, response_to(request, list(words)))

    def take(self) -> TransactionRequest:
        request, self.request = self.request, None
        assert request is not None, "no request is under way"
        return request

    def watch(self, result: TransactionResult) -> None:
        result.add_done_callback(self.completed)

    def completed(self, result: TransactionResult) -> None:
        result.is_acked = True
        outcome = "is done" if result.error is None else f"failed: {describe(result.error)}"
        self.lines.append(f"{result.operation} {outcome}")


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def identity(text: str) -> ProducerIdAndEpoch:
    producer_id, _, epoch = text.partition("/")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


def show(request: TransactionRequest) -> str:
    words = [type(request).__name__]
    match request:
        case InitProducerId():
            words += [f"timeout={request.transaction_timeout_ms}"]
            words += [f"as={request.identity.producer_id}/{request.identity.epoch}"] * request.is_epoch_bump
            words += ["2pc"] * request.enables_two_phase_commit + ["keep"] * request.keeps_prepared
        case AddPartitionsToTxn():
            words += map(str, request.partitions)
        case AddOffsetsToTxn():
            words += [request.group.group_id]
        case TxnOffsetCommit():
            words += [request.group.group_id]
            words += [f"{each}={position.offset}" for each, position in request.pending.items()]
        case EndTxn():
            words += ["commit" if request.is_commit else "abort"]
    if not isinstance(request, InitProducerId):
        carried = getattr(request, "identity", NO_PRODUCER)
        words += [f"by {carried.producer_id}/{carried.epoch}"]
    versions = [f"v{request.version_min}+"] * bool(request.version_min)
    versions += [f"v..{request.version_max}"] * (request.version_max is not None)
    words += versions
    if request.attempts:
        words += ["again", *["at once"] * request.retries_at_once]
        words += ["after a look-up"] * request.coordinator_is_stale
        request.coordinator_is_stale = False
    return " ".join(words)


def response_to(request: TransactionRequest, words: list[str]) -> Message:
    """``CODE``, then what the response has besides; one code for each partition where they differ."""
    code = ErrorCode[words[0]] if "=" not in words[0] else ErrorCode.NONE
    match request:
        case InitProducerId():
            given = identity(words[1]) if code is ErrorCode.NONE else NO_PRODUCER
            kept = identity(words[3]) if "keeps" in words else NO_PRODUCER
            return InitProducerIdResponse(
                error_code=code,
                producer_id=given.producer_id,
                producer_epoch=given.epoch,
                ongoing_txn_producer_id=kept.producer_id,
                ongoing_txn_producer_epoch=kept.epoch,
            )
        case EndTxn():
            given = identity(words[1]) if len(words) > 1 else NO_PRODUCER
            return EndTxnResponse(error_code=code, producer_id=given.producer_id, producer_epoch=given.epoch)
        case AddOffsetsToTxn():
            return AddOffsetsToTxnResponse(error_code=code)
        case AddPartitionsToTxn():
            codes = partition_codes(list(request.partitions), words, code)
            return AddPartitionsToTxnResponse(
                results_by_transaction=[],
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        name=topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=each.partition, partition_error_code=codes[each]
                            )
                            for each in partitions
                        ],
                    )
                    for topic, partitions in by_topic(codes).items()
                ],
            )
        case TxnOffsetCommit():
            codes = partition_codes(list(request.pending), words, code)
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic,
                        partitions=[
                            TxnOffsetCommitResponsePartition(
                                partition_index=each.partition, error_code=codes[each]
                            )
                            for each in partitions
                        ],
                    )
                    for topic, partitions in by_topic(codes).items()
                ]
            )
    raise AssertionError(f"no response to {request}")


def partition_codes(
    partitions: list[TopicPartition], words: list[str], code: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    codes = dict.fromkeys(partitions, code)
    for word in words:
        if "=" in word:
            name, _, text = word.partition("=")
            codes[partition(name)] = ErrorCode[text]
    return codes
