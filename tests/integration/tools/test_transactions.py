"""`kalda transactions` against a broker that does not verify transactions, so that one can hang."""

import time
from collections.abc import AsyncIterator, Iterator

import pytest

from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tests.integration.tools.commands import Commands
from tests.integration.transactions.test_transaction_requests import RawProducer
from tests.shared_broker import shared_broker


@pytest.fixture(scope="module")
def kalda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "2",
    }
    with shared_broker(tmp_path_factory.mktemp("broker"), settings) as bootstrap:
        yield Commands(bootstrap)


@pytest.fixture
async def producer(kalda: Commands) -> AsyncIterator[RawProducer]:
    host, _, port = kalda.bootstrap.rpartition(":")
    connection = await TcpDialer().dial(host, int(port), DialOptions(client_id="raw", timeout_seconds=30.0))
    topic = f"topic-{time.monotonic_ns()}"
    kalda("topics", "create", topic, "--partitions", 2)
    yield RawProducer(connection, topic)
    connection.close()


async def test_transactions_and_producers_are_listed_and_described(
    kalda: Commands, producer: RawProducer
) -> None:
    await producer.begin()
    await producer.add(0, 1)
    await producer.send("open")
    name, identity = producer.transactional_id, producer.identity

    listed = {row[0]: row[1:] for row in kalda("transactions", "list", "--state", "ongoing").rows}
    assert [str(identity.producer_id), "Ongoing"] == listed[name]
    (described,) = kalda.json("transactions", "describe", name)["transactions"]
    assert ("Ongoing", identity.producer_id, 60_000) == (
        described["state"],
        described["producer_id"],
        described["timeout_ms"],
    )
    assert [0, 1] == [each["partition"] for each in described["partitions"]]
    (row,) = kalda("transactions", "describe", "--transactional-id", name).rows
    assert [name, f"{producer.topic}(0,1)"] == [row[0], row[-1]]
    (row,) = kalda("transactions", "describe-producers", "--topic", producer.topic, "--partition", 0).rows
    assert [producer.topic, "0", str(identity.producer_id), str(identity.epoch), "-", "0", "1000", "0"] == row
    assert [] == kalda("transactions", "find-hanging", "--topic", producer.topic).rows

    assert f"Terminated the transaction of {name}.\n" == kalda("transactions", "force-terminate", name).stdout
    done = kalda.refused("transactions", "describe", "nobody")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in done.stderr


async def test_a_hanging_transaction_is_found_and_aborted(kalda: Commands, producer: RawProducer) -> None:
    """A record that arrives after the marker opens a transaction that no coordinator will end."""
    await producer.begin()
    await producer.add(0)
    await producer.send("ended")
    end = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        committed=True,
    )
    assert 0 == (await producer.ask(end, EndTxnResponse, 3)).error_code
    while (await producer.describe()).transaction_state != "CompleteCommit":
        pass
    assert 0 == await producer.send("late")

    find = ("transactions", "find-hanging", "--topic", producer.topic)
    (found,) = kalda.json(*find)["transactions"]
    assert (0, producer.identity.producer_id, 2) == (
        found["partition"],
        found["producer_id"],
        found["start_offset"],
    )
    assert [[producer.topic, "0"]] == [row[:2] for row in kalda(*find, "--broker-id", 0).rows]
    assert [] == kalda(*find, "--partition", 1).rows
    assert "--broker-id=9 is not in the cluster" in kalda.refused(*find, "--broker-id", 9).stderr
    abort = ("transactions", "abort", "--topic", producer.topic, "--partition", 0)
    done = kalda.refused(*abort, "--start-offset", 99)
    assert f"no open transaction starts at offset 99 of {producer.topic}-0" in done.stderr
    done = kalda(*abort, "--start-offset", 2)
    expected = f"Aborted the transaction of producer {producer.identity.producer_id} in {producer.topic}-0.\n"
    assert expected == done.stdout
    assert [] == kalda(*find).rows


def test_faults_of_the_command_line_are_one_line_each(kalda: Commands) -> None:
    for arguments, expected in (
        (("list", "--state", "done"), "--state=done is not allowed: it takes Empty, Ongoing"),
        (("describe",), "use --transactional-id"),
        (("find-hanging",), "say where to search: use --broker-id, or --topic"),
        (("find-hanging", "--broker-id", "0", "--partition", "1"), "--partition needs --topic"),
        (
            ("abort", "--topic", "t", "--partition", "0"),
            "name the transaction by --start-offset, or by all of",
        ),
        (
            ("abort", "--topic", "t", "--partition", "0", "--start-offset", "1", "--producer-id", "0"),
            "name the transaction by --start-offset, or by all of",
        ),
    ):
        done = kalda.refused("transactions", *arguments)
        assert (2, "") == (done.code, done.stdout)
        (line,) = done.stderr.splitlines()
        assert expected in line
