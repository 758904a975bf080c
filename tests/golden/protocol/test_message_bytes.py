"""Messages as bytes, spelled out by hand from the protocol guide, one piece a line.

Unlike the tests against oracles these need nothing but their own text, and they show a reader what a
version looks like on the wire.
"""

from typing import NamedTuple
from uuid import UUID

import pytest

from kalda.protocol import codec
from kalda.protocol.codec_reference import decode_reference, encode_reference
from kalda.protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)
from kalda.protocol.messages import (
    acquire_read_lease,
    allocate_producer_ids,
    alter_faults,
    alter_namespaces,
    alter_partition,
    api_versions,
    consumer_group_records,
    describe_events,
    describe_process,
    fetch,
    metadata,
    produce,
    release_read_lease,
    share_acknowledge,
)
from kalda.protocol.schema import Message

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
TOPIC_ID_HEX = "00112233445566778899aabbccddeeff"


class Golden(NamedTuple):
    """A message, a version and the bytes of its body in hex, spaces for the eye."""

    message: Message
    version: int
    hex: tuple[str, ...]

    @property
    def bytes(self) -> bytes:
        return bytes.fromhex("".join(self.hex))


GOLDEN = (
    Golden(
        alter_partition.AlterPartitionRequest(
            broker_id=1,
            broker_epoch=258,
            topics=[
                alter_partition.TopicData(
                    topic_name="t",
                    partitions=[
                        alter_partition.PartitionData(
                            partition_index=2, leader_epoch=3, new_isr=[1, 4], partition_epoch=5
                        )
                    ],
                )
            ],
        ),
        0,
        (
            "00000001",
            "0000000000000102",
            "02 02 74 02 00000002 00000003",
            "03 00000001 00000004",
            "00000005",
            "00 00 00",
        ),
    ),
    Golden(
        alter_partition.AlterPartitionRequest(
            broker_id=1,
            broker_epoch=258,
            topics=[
                alter_partition.TopicData(
                    topic_id=TOPIC_ID,
                    partitions=[
                        alter_partition.PartitionData(
                            partition_index=2,
                            leader_epoch=3,
                            new_isr_with_epochs=[
                                alter_partition.BrokerState(broker_id=1, broker_epoch=258),
                                alter_partition.BrokerState(broker_id=4),
                            ],
                            leader_recovery_state=1,
                            partition_epoch=5,
                        )
                    ],
                )
            ],
        ),
        3,
        (
            "00000001",
            "0000000000000102",
            "02",
            TOPIC_ID_HEX,
            "02 00000002 00000003",
            "03 00000001 0000000000000102 00 00000004 ffffffffffffffff 00",
            "01",  # recovering
            "00000005",
            "00 00 00",
        ),
    ),
    Golden(
        alter_partition.AlterPartitionResponse(
            topics=[
                alter_partition.AlteredTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        alter_partition.AlteredPartition(
                            partition_index=2, leader_id=1, leader_epoch=3, isr=[1, 4], partition_epoch=6
                        ),
                        alter_partition.AlteredPartition(partition_index=7, error_code=107),
                    ],
                )
            ]
        ),
        3,
        (
            "00000000",
            "0000",
            "02",
            TOPIC_ID_HEX,
            "03",
            "00000002 0000 00000001 00000003 03 00000001 00000004 00 00000006 00",
            "00000007 006b 00000000 00000000 01 00 00000000 00",
            "00 00",
        ),
    ),
    Golden(
        allocate_producer_ids.AllocateProducerIdsRequest(broker_id=1, broker_epoch=258),
        0,
        ("00000001", "0000000000000102", "00"),
    ),
    Golden(
        allocate_producer_ids.AllocateProducerIdsResponse(producer_id_start=2000, producer_id_len=1000),
        0,
        ("00000000", "0000", "00000000000007d0", "000003e8", "00"),
    ),
    Golden(
        acquire_read_lease.AcquireReadLeaseRequest(
            isolation_level=1,
            topics=[
                acquire_read_lease.LeaseTopic(
                    topic="t",
                    topic_id=TOPIC_ID,
                    partitions=[
                        acquire_read_lease.LeasePartition(
                            partition=2, current_leader_epoch=3, start_offset=16, end_offset=256
                        )
                    ],
                )
            ],
        ),
        0,
        (
            "01",
            "02",  # one topic
            "02 74",
            TOPIC_ID_HEX,
            "02 00000002 00000003 0000000000000010 0000000000000100",
            "ffffffffffffffff 00",  # no lease yet
            "00 00",
        ),
    ),
    Golden(
        acquire_read_lease.AcquireReadLeaseResponse(
            topics=[
                acquire_read_lease.LeasedTopic(
                    topic="t",
                    topic_id=TOPIC_ID,
                    partitions=[
                        acquire_read_lease.LeasedPartition(
                            partition=2,
                            lease_id=77,
                            lease_ms=60000,
                            leader_epoch=3,
                            log_start_offset=0,
                            high_watermark=256,
                            last_stable_offset=255,
                            end_offset=255,
                            directory="/d/t-2",
                            nonce_file="/d/n",
                            nonce="ab",
                            host_id="h",
                            segments=[
                                acquire_read_lease.LeasedSegment(
                                    base_offset=16,
                                    file="16.log",
                                    start_position=1,
                                    end_position=2,
                                    flushed_position=3,
                                    device=4,
                                    inode=5,
                                    is_sealed=True,
                                )
                            ],
                            aborted_transactions=[
                                acquire_read_lease.LeaseAbortedTransaction(
                                    producer_id=6, first_offset=7, last_offset=8
                                )
                            ],
                        )
                    ],
                )
            ],
        ),
        0,
        (
            "00000000",
            "02 02 74",
            TOPIC_ID_HEX,
            "02 00000002 0000 00",
            "000000000000004d 0000ea60 00000003",
            "0000000000000000 0000000000000100 00000000000000ff 00000000000000ff",
            "07 2f642f742d32 05 2f642f6e 03 6162 02 68",
            "02 0000000000000010 07 31362e6c6f67",
            "0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005 01 00",
            "02 0000000000000006 0000000000000007 0000000000000008 00",
            "00 00 00",
        ),
    ),
    Golden(alter_faults.AlterFaultsRequest(plan="fetch:drop"), 0, ("0b 66657463683a64726f70", "00")),
    Golden(
        alter_faults.AlterFaultsResponse(error_code=42, error_message="no", plan="", applied=[3]),
        0,
        ("002a 03 6e6f 01 02 0000000000000003 00",),
    ),
    Golden(describe_process.DescribeProcessRequest(), 0, ("00",)),
    Golden(
        describe_process.DescribeProcessResponse(
            error_code=42, version="1", is_compiled=True, time_ms=5, open_files=6, open_files_max=7
        ),
        0,
        ("00000000 002a 02 31 01 0000000000000005 0000000000000006 0000000000000007 00",),
    ),
    Golden(
        describe_events.DescribeEventsRequest(
            since_ms=1,
            until_ms=2,
            after_number=3,
            events_max=4,
            subjects=[describe_events.EventSubject(subject_type="topic", subject_name="t")],
        ),
        0,
        (
            "0000000000000001 0000000000000002 0000000000000003 00000004 02 06 746f706963 02 74 00",
            "00",
        ),
    ),
    Golden(
        describe_events.DescribeEventsResponse(
            error_code=42, error_message="no", broker_id=7, oldest_ms=9, has_more=True, events=[b"{}"]
        ),
        0,
        ("00000000 002a 03 6e6f 00000007 0000000000000009 01 02 03 7b7d 00",),
    ),
    Golden(
        alter_namespaces.AlterNamespacesRequest(
            operation=1,
            names=["a"],
            port=2,
            faults=None,
            endpoints=[
                alter_namespaces.NamespaceEndpoint(
                    broker_id=1, listener="L", host="h", port=9, security_protocol="SSL"
                )
            ],
        ),
        0,
        ("01 02 02 61 00000002 00 02 00000001 02 4c 02 68 00000009 04 53534c 00", "00"),
    ),
    Golden(
        alter_namespaces.AlterNamespacesResponse(error_code=42, error_message="no", endpoint=[], names=["a"]),
        0,
        ("002a 03 6e6f 01 02 02 61 00",),
    ),
    Golden(
        release_read_lease.ReleaseReadLeaseRequest(
            leases=[release_read_lease.ReleasedLease(lease_id=77, bytes_read=4096, fallback_reason="corrupt")]
        ),
        0,
        ("02 000000000000004d 0000000000001000 08 636f7272757074 00", "00"),
    ),
    Golden(
        release_read_lease.ReleaseReadLeaseResponse(
            leases=[release_read_lease.ReleaseResult(lease_id=77, has_held=True, leader_epoch=3)]
        ),
        0,
        ("00000000", "02 000000000000004d 0000 01 00000003 00", "00"),
    ),
    Golden(api_versions.ApiVersionsRequest(), 0, ()),
    Golden(
        api_versions.ApiVersionsRequest(client_software_name="kalda", client_software_version="1.0"),
        3,
        (
            "06 6b616c6461",  # compact string: length 5 plus 1
            "04 312e30",
            "00",  # no tagged fields
        ),
    ),
    Golden(
        api_versions.ApiVersionsResponse(
            error_code=35, api_keys=[api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        0,
        (
            "0023",  # UNSUPPORTED_VERSION
            "00000001",
            "0012 0000 0004",
        ),
    ),
    Golden(
        api_versions.ApiVersionsResponse(
            api_keys=[api_versions.ApiVersion(api_key=0, min_version=0, max_version=11)],
            throttle_time_ms=7,
            finalized_features_epoch=9,
            finalized_features=[
                api_versions.FinalizedFeatureKey(name="tx", max_version_level=2, min_version_level=1)
            ],
        ),
        4,
        (
            "0000",
            "02",  # compact array: 1 element plus 1
            "0000 0000 000b 00",
            "00000007",
            "02",  # two tagged fields, in order of tag
            "01 08 0000000000000009",  # finalized_features_epoch
            "02 09 02 03 7478 0002 0001 00",  # finalized_features
        ),
    ),
    Golden(metadata.MetadataRequest(), 0, ("00000000",)),
    Golden(metadata.MetadataRequest(topics=None), 1, ("ffffffff",)),
    Golden(
        metadata.MetadataRequest(
            topics=[
                metadata.MetadataRequestTopic(name="a"),
                metadata.MetadataRequestTopic(name=None, topic_id=TOPIC_ID),
            ],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        12,
        (
            "03",
            "00000000000000000000000000000000 02 61 00",
            f"{TOPIC_ID_HEX} 00 00",  # a null name
            "00",  # allow_auto_topic_creation
            "01",  # include_topic_authorized_operations
            "00",
        ),
    ),
    Golden(
        metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="h", port=9092, rack="r")],
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(
                    name="t",
                    partitions=[
                        metadata.MetadataResponsePartition(
                            partition_index=2, leader_id=1, replica_nodes=[1, 3], isr_nodes=[1]
                        )
                    ],
                )
            ],
        ),
        1,
        (
            "00000001",
            "00000001 0001 68 00002384 0001 72",
            "00000001",  # controller
            "00000001",
            "0000 0001 74 00",  # error, name, is_internal
            "00000001",
            "0000 00000002 00000001",
            "00000002 00000001 00000003",  # replicas
            "00000001 00000001",  # in sync
        ),
    ),
    Golden(
        metadata.MetadataResponse(
            throttle_time_ms=1,
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="h", port=9092)],
            cluster_id="c",
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(
                    name="t",
                    topic_id=TOPIC_ID,
                    is_internal=True,
                    partitions=[
                        metadata.MetadataResponsePartition(
                            error_code=5,
                            partition_index=2,
                            leader_id=-1,
                            leader_epoch=4,
                            replica_nodes=[1],
                            offline_replicas=[1],
                        )
                    ],
                    topic_authorized_operations=264,
                )
            ],
        ),
        12,
        (
            "00000001",
            "02 00000001 02 68 00002384 00 00",  # rack null, no tagged fields
            "02 63",
            "00000001",
            f"02 0000 02 74 {TOPIC_ID_HEX} 01",
            "02 0005 00000002 ffffffff 00000004",
            "02 00000001",  # replicas
            "01",  # none in sync
            "02 00000001",  # offline
            "00",
            "00000108 00",  # authorised operations, end of the topic
            "00",
        ),
    ),
    Golden(
        produce.ProduceRequest(
            acks=1,
            timeout_ms=1500,
            topic_data=[
                produce.TopicProduceData(
                    name="t", partition_data=[produce.PartitionProduceData(index=3, records=b"\xca\xfe")]
                )
            ],
        ),
        2,
        (
            "0001 000005dc",
            "00000001 0001 74",
            "00000001 00000003 00000002 cafe",
        ),
    ),
    Golden(
        produce.ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                produce.TopicProduceData(
                    name="t", partition_data=[produce.PartitionProduceData(index=3, records=b"\xca\xfe")]
                )
            ],
        ),
        9,
        (
            "02 78 ffff 000005dc",
            "02 02 74",
            "02 00000003 03 cafe 00",
            "00 00",  # end of the topic, end of the request
        ),
    ),
    Golden(
        produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name="t",
                    partition_responses=[produce.PartitionProduceResponse(index=3, base_offset=258)],
                )
            ]
        ),
        0,
        ("00000001 0001 74", "00000001 00000003 0000 0000000000000102"),
    ),
    Golden(
        produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name="t",
                    partition_responses=[
                        produce.PartitionProduceResponse(
                            index=3,
                            error_code=6,
                            base_offset=-1,
                            record_errors=[
                                produce.BatchIndexAndErrorMessage(
                                    batch_index=4, batch_index_error_message="b"
                                )
                            ],
                            current_leader=produce.LeaderIdAndEpoch(leader_id=2, leader_epoch=7),
                        )
                    ],
                )
            ],
            node_endpoints=[produce.NodeEndpoint(node_id=2, host="h", port=9092)],
        ),
        10,
        (
            "02 02 74",
            "02 00000003 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff",
            "02 00000004 02 62 00",  # record errors
            "00",  # no error message
            "01 00 09 00000002 00000007 00",  # tag 0: current_leader, 9 bytes
            "00",  # end of the topic
            "00000000",
            "01 00 0d 02 00000002 02 68 00002384 00 00",  # tag 0: node_endpoints, 13 bytes
        ),
    ),
    Golden(
        fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1024,
            isolation_level=1,
            topics=[
                fetch.FetchTopic(
                    topic="t",
                    partitions=[fetch.FetchPartition(partition=3, fetch_offset=258, partition_max_bytes=512)],
                )
            ],
        ),
        4,
        (
            "ffffffff 000001f4 00000001 00000400 01",
            "00000001 0001 74",
            "00000001 00000003 0000000000000102 00000200",
        ),
    ),
    Golden(
        fetch.FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=2, replica_epoch=5),
            max_wait_ms=500,
            min_bytes=1,
            session_id=6,
            session_epoch=7,
            topics=[
                fetch.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        fetch.FetchPartition(
                            partition=3,
                            current_leader_epoch=8,
                            fetch_offset=258,
                            last_fetched_epoch=8,
                            log_start_offset=0,
                            partition_max_bytes=512,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[fetch.ForgottenTopic(topic_id=TOPIC_ID, partitions=[1])],
            rack_id="r",
        ),
        17,
        (
            "000001f4 00000001 7fffffff 00",  # no replica id: it is tagged from v15
            "00000006 00000007",
            f"02 {TOPIC_ID_HEX}",
            "02 00000003 00000008 0000000000000102 00000008 0000000000000000 00000200 00",
            "00",
            f"02 {TOPIC_ID_HEX} 02 00000001 00",  # forgotten
            "02 72",
            "01 01 0d 00000002 0000000000000005 00",  # tag 1: replica_state, 13 bytes
        ),
    ),
    Golden(
        fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        fetch.PartitionData(
                            partition_index=3,
                            high_watermark=258,
                            last_stable_offset=257,
                            aborted_transactions=[fetch.AbortedTransaction(producer_id=9, first_offset=250)],
                            records=b"\xca\xfe",
                        )
                    ],
                )
            ]
        ),
        4,
        (
            "00000000",
            "00000001 0001 74",
            "00000001 00000003 0000 0000000000000102 0000000000000101",
            "00000001 0000000000000009 00000000000000fa",
            "00000002 cafe",
        ),
    ),
    Golden(
        fetch.FetchResponse(
            throttle_time_ms=1,
            session_id=6,
            responses=[
                fetch.FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=[
                        fetch.PartitionData(
                            partition_index=3,
                            error_code=6,
                            high_watermark=-1,
                            diverging_epoch=fetch.EpochEndOffset(epoch=1, end_offset=2),
                            current_leader=fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=7),
                            aborted_transactions=None,
                            records=None,
                        )
                    ],
                )
            ],
            node_endpoints=[fetch.NodeEndpoint(node_id=2, host="h", port=9092, rack="r")],
        ),
        16,
        (
            "00000001 0000 00000006",
            f"02 {TOPIC_ID_HEX}",
            "02 00000003 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff",
            "00",  # aborted transactions: null
            "ffffffff",  # no preferred replica
            "00",  # records: null
            "02",
            "00 0d 00000001 0000000000000002 00",
            "01 09 00000002 00000007 00",
            "00",  # end of the topic
            "01 00 0e 02 00000002 02 68 00002384 02 72 00",
        ),
    ),
    # As Apache Kafka 4.1 wrote it for a member of the consumer protocol.
    Golden(
        consumer_group_records.ConsumerGroupMemberMetadataValue(
            instance_id="i2",
            rack_id=None,
            client_id="sc",
            client_host="/127.0.0.1",
            subscribed_topic_names=["t6"],
            subscribed_topic_regex="",
            rebalance_timeout_ms=300_000,
            server_assignor=None,
            classic_member_metadata=None,
        ),
        0,
        (
            "03 6932",
            "00",  # no rack
            "03 7363",
            "0b 2f3132372e302e302e31",
            "02 03 7436",
            "01",  # an expression, though an empty one
            "000493e0",
            "00",  # no assignor
            "01 00 01 00",  # one tagged field of one byte: null, which is not the default of a struct
        ),
    ),
    Golden(
        consumer_group_records.ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            subscribed_topic_regex=None,
            server_assignor=None,
            classic_member_metadata=consumer_group_records.ClassicMemberMetadata(
                session_timeout_ms=7,
                supported_protocols=[consumer_group_records.ClassicProtocol(name="r", metadata=b"m")],
            ),
        ),
        0,
        (
            "00 00 01 01 01 00",  # no instance, no rack, no client, no topics, no expression
            "ffffffff",
            "00",
            "01 00 0c",
            "01",  # there is a struct
            "00000007",
            "02 02 72 02 6d 00",
            "00",
        ),
    ),
    Golden(
        share_acknowledge.ShareAcknowledgeRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=1,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=3,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=4,
                                    last_offset=5,
                                    acknowledge_types=[2],
                                    release_delay_ms=700,
                                ),
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=6, last_offset=6, acknowledge_types=[1]
                                ),
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=7, last_offset=7, acknowledge_types=[3], reject_reason="bad"
                                ),
                            ],
                        )
                    ],
                )
            ],
        ),
        2,
        (
            "02 67 02 6d 00000001 00",
            "02",
            TOPIC_ID_HEX,
            "02 00000003 04",
            "0000000000000004 0000000000000005 02 02",
            "01 904e 04 000002bc",  # tag 10,000: release_delay_ms, 4 bytes
            "0000000000000006 0000000000000006 02 01 00",  # -1 and no reason are not sent
            "0000000000000007 0000000000000007 02 03",
            "01 914e 04 04 626164",  # tag 10,001: reject_reason, 4 bytes, 3 of text
            "00 00 00",
        ),
    ),
)


@pytest.mark.parametrize(
    "golden", GOLDEN, ids=lambda golden: f"{type(golden.message).__name__}-v{golden.version}"
)
def test_message_has_these_bytes(golden: Golden) -> None:
    """Both codecs, both ways."""
    message, version = golden.message, golden.version
    assert codec.encode(message, version).hex() == golden.bytes.hex()
    assert encode_reference(message, version).hex() == golden.bytes.hex()
    assert message == codec.decode(type(message), version, golden.bytes)
    assert message == decode_reference(type(message), version, golden.bytes)


@pytest.mark.parametrize(
    ("header", "header_version", "expected"),
    [
        (RequestHeader(18, 3, 1, "me"), 2, "0012 0003 00000001 0002 6d65 00"),
        (RequestHeader(18, 2, 1, "me"), 1, "0012 0002 00000001 0002 6d65"),
        (RequestHeader(3, 9, 0x7FFFFFFF, None), 2, "0003 0009 7fffffff ffff 00"),
        (RequestHeader(3, 8, -1, ""), 1, "0003 0008 ffffffff 0000"),
    ],
)
def test_request_header_has_these_bytes(header: RequestHeader, header_version: int, expected: str) -> None:
    """The client id keeps its two-byte length even in the flexible header."""
    data = bytes.fromhex(expected)
    assert data == request_header(header, header_version)
    assert read_request_header(b"\xff\xff" + data + b"body", 2) == (header, 2 + len(data))


def test_request_header_version_0_ends_with_the_correlation_id() -> None:
    """Only the ControlledShutdown of old brokers has it."""
    assert "0007000000000005" == request_header(RequestHeader(7, 0, 5, None), 0).hex()


@pytest.mark.parametrize(("header_version", "expected"), [(0, "00000102"), (1, "00000102 00")])
def test_response_header_has_these_bytes(header_version: int, expected: str) -> None:
    data = bytes.fromhex(expected)
    assert data == response_header(258, header_version)
    assert read_response_header(data + b"body", header_version) == (258, len(data))
