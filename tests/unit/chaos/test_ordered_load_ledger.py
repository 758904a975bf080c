"""The judge of the chaos runs must be able to find each kind of damage, or a run proves nothing."""

from pathlib import Path

import pytest

from tests.chaos.ordered_load import UNKNOWN_OFFSET, Ledger, Record, is_refusal
from tests.chaos.replica_check import ReplicasDifferError, check_replicas


def ledger_of(*records: tuple[int, int]) -> Ledger:
    """Read these (offset, number) pairs of one partition."""
    ledger = Ledger(partitions=1)
    for offset, number in records:
        ledger.read(Record(0, offset, number))
    return ledger


def test_an_unbroken_sequence_is_no_violation() -> None:
    ledger = ledger_of((0, 0), (1, 1), (2, 2))
    for number in range(3):
        ledger.acknowledge(Record(0, number, number))
    ledger.check_all_read()
    assert [] == ledger.violations
    assert 3 == ledger.acknowledged_count


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(((0, 0), (1, 2)), id="lost record"),
        pytest.param(((0, 0), (1, 0)), id="duplicate"),
        pytest.param(((0, 1), (1, 0)), id="reordered"),
        pytest.param(((0, 0), (2, 1)), id="gap in the offsets"),
        pytest.param(((0, 0), (0, 0)), id="read twice"),
    ],
)
def test_damage_is_a_violation(records: tuple[tuple[int, int], ...]) -> None:
    assert ledger_of(*records).violations


def test_markers_may_lie_between_copies_but_nothing_else_may_be_wrong() -> None:
    ledger = Ledger(partitions=1, is_dense=False)
    for offset, number in ((0, 0), (1, 1), (3, 2)):
        ledger.read(Record(0, offset, number))
    assert [] == ledger.violations
    ledger.read(Record(0, 5, 2))
    ledger.read(Record(0, 4, 3))
    assert 2 == len(ledger.violations)


def test_an_acknowledged_record_that_nobody_read_is_a_violation() -> None:
    ledger = ledger_of((0, 0))
    ledger.acknowledge(Record(0, 0, 0))
    ledger.acknowledge(Record(0, 1, 1))
    ledger.check_all_read()
    assert 1 == len(ledger.violations)
    assert "number 1" in ledger.violations[0]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(((0, 0), (0, 1)), id="two at one offset"),
        pytest.param(((0, 0), (1, 0)), id="one at two offsets"),
        pytest.param(((1, 0),), id="not where it belongs"),
    ],
)
def test_acknowledgements_that_cannot_be_are_violations(records: tuple[tuple[int, int], ...]) -> None:
    ledger = Ledger(partitions=1)
    for offset, number in records:
        ledger.acknowledge(Record(0, offset, number))
    assert ledger.violations


def test_an_acknowledgement_without_an_offset_must_be_read_too() -> None:
    ledger = ledger_of((0, 0))
    ledger.acknowledge(Record(0, UNKNOWN_OFFSET, 0))
    assert ledger.is_all_read()
    ledger.acknowledge(Record(0, UNKNOWN_OFFSET, 1))
    assert not ledger.is_all_read()
    ledger.check_all_read()
    assert 1 == len(ledger.violations)


def replica(directory: Path, batches: list[tuple[int, bytes]], high_watermark: int) -> Path:
    """Write a log directory with batches of one record each."""
    log = directory / "t-0"
    log.mkdir(parents=True)
    data = b""
    for offset, payload in batches:
        body = bytes(11) + bytes(4) + payload
        data += offset.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
    (log / "00000000000000000000.log").write_bytes(data)
    (directory / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
    return directory


def test_equal_replicas_agree_whatever_lies_above_the_high_watermark(tmp_path: Path) -> None:
    committed = [(0, b"a"), (1, b"b")]
    first = replica(tmp_path / "0", committed, 2)
    second = replica(tmp_path / "1", [*committed, (2, b"x")], 1)
    assert 2 == check_replicas([first, second], "t", 0)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([(0, b"a"), (1, b"c")], id="other bytes"),
        pytest.param([(0, b"a")], id="committed record missing"),
    ],
)
def test_replicas_that_differ_are_found(tmp_path: Path, batches: list[tuple[int, bytes]]) -> None:
    first = replica(tmp_path / "0", [(0, b"a"), (1, b"b")], 2)
    second = replica(tmp_path / "1", batches, 1)
    with pytest.raises(ReplicasDifferError):
        check_replicas([first, second], "t", 0)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("_AUTHENTICATION", "SASL authentication error: invalid credentials", True),
        ("_AUTHENTICATION", "handshake failed: Local: Broker transport failure: (n/a)", False),
        ("_AUTHENTICATION", "handshake failed: Local: Timed out in queue: (n/a)", False),
        ("_AUTHENTICATION", "JoinGroup failed: Local: Authentication failure", False),
        ("TOPIC_AUTHORIZATION_FAILED", "Broker: Topic authorization failed", True),
        ("_SSL", "SSL handshake failed: certificate verify failed", True),
        ("_SSL", "SSL handshake failed: Disconnected", False),
        ("_TRANSPORT", "Connect failed: Connection refused", False),
    ],
)
def test_refusals_are_told_from_lost_connections(name: str, text: str, *, expected: bool) -> None:
    assert expected == is_refusal(name, text)
