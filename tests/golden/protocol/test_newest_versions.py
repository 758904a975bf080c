"""The versions of requests that are new in Kafka 4.1 to 4.4, as the Java classes of 4.4.0 write them."""

from uuid import UUID

import pytest

from kalda.protocol import codec
from kalda.protocol.codec_reference import decode_reference, encode_reference
from kalda.protocol.messages import (
    api_versions,
    consumer_group_records,
    delete_groups,
    describe_cluster,
    describe_log_dirs,
    fetch,
    list_offsets,
    txn_offset_commit,
    write_txn_markers,
)
from kalda.protocol.schema import Message

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

GOLDEN: tuple[tuple[Message, int, str], ...] = (
    (
        api_versions.ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id="c", node_id=3
        ),
        5,
        "0261 0231 0263 00000003 00",
    ),
    (
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=7,
            producer_epoch=2,
            generation_id=5,
            member_id="m",
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=1,
                            committed_offset=16,
                            committed_leader_epoch=4,
                            committed_metadata=None,
                        )
                    ],
                )
            ],
        ),
        6,
        (
            "0274 0267 0000000000000007 0002 00000005 026d 00 02 00112233445566778899aabbccddeeff"
            "02 00000001 0000000000000010 00000004 00 00 00 00"
        ),
    ),
    (
        txn_offset_commit.TxnOffsetCommitResponse(
            topics=[
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=1, error_code=100)
                    ],
                )
            ]
        ),
        6,
        "00000000 02 00112233445566778899aabbccddeeff 02 00000001 0064 00 00 00",
    ),
    (
        describe_log_dirs.DescribeLogDirsResponse(
            results=[
                describe_log_dirs.DescribeLogDirsResult(
                    log_dir="/d", total_bytes=32, usable_bytes=16, is_cordoned=True
                )
            ]
        ),
        5,
        "00000000 0000 02 0000 032f64 01 0000000000000020 0000000000000010 01 00 00",
    ),
    (
        write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=7,
                    producer_epoch=2,
                    transaction_result=True,
                    coordinator_epoch=4,
                    transaction_version=2,
                    topics=[write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
                )
            ]
        ),
        2,
        "02 0000000000000007 0002 01 02 0274 02 00000001 00 00000004 02 00 00",
    ),
    (
        delete_groups.DeleteGroupsResponse(
            results=[delete_groups.DeletableGroupResult(group_id="g", error_code=68, error_message="no")]
        ),
        3,
        "00000000 02 0267 0044 036e6f 00 00",
    ),
    (
        describe_cluster.DescribeClusterResponse(
            cluster_id="c",
            controller_id=1,
            brokers=[
                describe_cluster.DescribeClusterBroker(broker_id=1, host="h", port=9092, is_fenced=True)
            ],
        ),
        2,
        "00000000 0000 00 01 0263 00000001 02 00000001 0268 00002384 00 01 00 80000000 00",
    ),
    (
        fetch.FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            max_bytes=16,
            topics=[
                fetch.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        fetch.FetchPartition(
                            partition=2, fetch_offset=16, partition_max_bytes=32, high_watermark=9
                        )
                    ],
                )
            ],
        ),
        18,
        (
            "00000001 00000001 00000010 00 00000000 ffffffff 02 00112233445566778899aabbccddeeff"
            "02 00000002 ffffffff 0000000000000010 ffffffff ffffffffffffffff 00000020"
            "01 01 08 0000000000000009 00 01 01 00"
        ),
    ),
    (
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            timeout_ms=1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t",
                    partitions=[
                        list_offsets.ListOffsetsPartition(
                            partition_index=2, timestamp=list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP
                        )
                    ],
                )
            ],
        ),
        11,
        "ffffffff 00 02 0274 02 00000002 ffffffff fffffffffffffffa 00 00 00000001 00",
    ),
    (
        consumer_group_records.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=3, assignment_timestamp=256
        ),
        0,
        "00000003 01 00 08 0000000000000100",
    ),
    # Without the time, as Kafka before 4.3 writes it.
    (
        consumer_group_records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3),
        0,
        "00000003 00",
    ),
)


@pytest.mark.parametrize(
    ("message", "version", "text"), GOLDEN, ids=lambda value: getattr(type(value), "__name__", None)
)
def test_a_message_is_these_bytes(message: Message, version: int, text: str) -> None:
    data = bytes.fromhex(text)
    for encode in (codec.encode, encode_reference):
        assert data == encode(message, version)
    for decode in (codec.decode, decode_reference):
        assert message == decode(type(message), version, data)
