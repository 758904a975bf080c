"""A request with an Idempotency-Key that many clients repeat while a leader is killed is written once."""

import concurrent.futures
import itertools
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from kalda import Admin, Consumer, NewTopic, TopicPartition
from kalda.testing import ProcessCluster
from tests.http_server import http_process

REPETITIONS = 1_000
KILL_AT = 200
TOPIC = "orders"


@pytest.mark.timeout(600)
def test_a_key_repeated_a_thousand_times_over_a_killed_leader_writes_one_record(tmp_path: Path) -> None:
    """Two processes, eight clients, and the leaders of the topic and of the keys gone in the middle."""
    settings = {"min.insync.replicas": "2", "transaction.state.log.num.partitions": "2"}
    answered = threading.Event()
    numbers = itertools.count()
    with ExitStack() as stack:
        cluster = stack.enter_context(ProcessCluster(tmp_path / "cluster", brokers=3, settings=settings))
        gateways = [
            stack.enter_context(
                http_process(cluster, tmp_path / f"http-{each}", {"http.idempotency.partitions": "1"})
            )
            for each in range(2)
        ]
        admin = stack.enter_context(Admin(bootstrap_servers=cluster.bootstrap))
        admin.create_topics([NewTopic(TOPIC, partitions=1, replication_factor=3)])

        def repeat(client_number: int) -> set[str]:
            answers = set()
            with httpx.Client(base_url=gateways[client_number % 2].url, timeout=120) as client:
                while (number := next(numbers)) < REPETITIONS:
                    if number == KILL_AT:
                        answered.set()
                    response = client.post(
                        f"/v1/topics/{TOPIC}", json={"n": 1}, headers={"Idempotency-Key": "the-key"}
                    )
                    if response.status_code == 200:
                        answers.add(response.text)
                    else:
                        assert response.status_code >= 500, response.text
            return answers

        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            # Before the first answer, too: the first transaction may meet the loss.
            first = pool.submit(_kill_leader, cluster, admin)
            clients = [pool.submit(repeat, number) for number in range(8)]
            first.result()
            answered.wait()
            _kill_leader(cluster, admin)
            answers = set().union(*(each.result() for each in clients))
        with Consumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed") as consumer:
            place = TopicPartition(TOPIC, 0)
            consumer.assign([place])
            consumer.seek_to_beginning([place])
            end = consumer.end_offsets([place])[place]
            records = []
            while consumer.position(place) < end:
                records += consumer.poll(1.0)

    assert 1 == len(answers)
    assert 1 == len(records)
    assert f'"offset":{records[0].offset},' in next(iter(answers))


def _kill_leader(cluster: ProcessCluster, admin: Admin) -> None:
    leader = admin.describe_topics([TOPIC])[TOPIC].partitions[0].leader_id
    cluster.kill(leader)
    cluster.start(leader)
