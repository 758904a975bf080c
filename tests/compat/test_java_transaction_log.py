"""Our records of ``__transaction_state``, read by the classes of releases of Apache Kafka."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError, maven_jars
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction import transaction_log
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata
from kalda.coordinator.transaction.transaction_state import TransactionState

PROGRAM = Path(__file__).parent / "java" / "TransactionLogValues.java"
TAGGED = {
    0: ("previousProducerId=6900", "0000000000001af4"),
    1: ("nextProducerId=7100", "0000000000001bbc"),
    2: ("clientTransactionVersion=2", "0002"),
    3: ("nextProducerEpoch=4", "0004"),
    4: ("lastProducerEpoch=11", "000b"),
}
"""How each tagged field is printed by a class that knows it, and its bytes."""
KNOWN_TAGS = {"3.9.1": 0, "4.4.0": 4}
"""How many of them a release knows; those with the lowest tags."""
METADATA = TransactionMetadata(
    "copier",
    7001,
    12,
    60_000,
    TransactionState.PREPARE_COMMIT,
    frozenset({TopicPartition("flights", 3)}),
    1_700_000_000_123,
    1_700_000_000_456,
    last_producer_epoch=11,
    previous_producer_id=6900,
    next_producer_id=7100,
    next_producer_epoch=4,
    client_version=2,
)


@pytest.mark.parametrize("release", KNOWN_TAGS)
def test_tags_that_a_release_does_not_know_are_passed_over(release: str) -> None:
    """Tag 4 is in no release: a broker of Apache Kafka that loads our log must read all the rest of it."""
    try:
        jars = maven_jars(
            f"transaction-log-{release}",
            (
                f"org.apache.kafka:kafka-transaction-coordinator:{release}",
                "org.slf4j:slf4j-nop:1.7.36",
            ),
        )
    except NotAvailableError as error:
        pytest.skip(str(error))
    value = transaction_log.encode(METADATA, 2).value
    assert value is not None
    done = subprocess.run(
        ["java", "-cp", f"{jars}/*", str(PROGRAM)],
        input=value.hex() + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    text, unknown, left = done.stdout.rstrip("\n").split("\t")
    known = KNOWN_TAGS[release]
    expected = [
        *("producerId=7001", "producerEpoch=12", "transactionTimeoutMs=60000", "topic='flights'"),
        *("partitionIds=[3]", "transactionLastUpdateTimestampMs=1700000000456"),
        *(TAGGED[tag][0] for tag in range(known)),
    ]
    assert [] == [each for each in expected if each not in text], text
    assert " ".join(f"{tag}={data}" for tag, (_, data) in TAGGED.items() if tag >= known) == unknown
    assert "0" == left
