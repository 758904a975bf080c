"""Programs whose threads or clocks are replaced: gevent, eventlet, freezegun, time-machine."""

import subprocess
import sys
from collections.abc import Callable

import pytest

TopicName = Callable[[str], str]

USE = """
with Producer(bootstrap_servers=bootstrap) as producer:
    sent = producer.send(topic, b"x").result(60)
with Admin(bootstrap_servers=bootstrap) as admin:
    assert topic in admin.list_topics()
with Consumer(
    topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
) as consumer:
    records = []
    while not records:
        records = consumer.poll(0.5)
    consumer.commit(timeout_s=20)
    consumer.poll(0.1)
print(records[0].value.decode(), records[0].timestamp_ms)
"""
IMPORTS = """
import sys, faulthandler
faulthandler.dump_traceback_later(50, exit=True)
bootstrap, topic = sys.argv[1:]
from kalda import Admin, Consumer, Producer
"""


def run(program: str, bootstrap: str, topic: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_gevent_may_replace_threads(bootstrap: str, topic_name: TopicName) -> None:
    pytest.importorskip("gevent")
    program = "from gevent import monkey; monkey.patch_all()" + IMPORTS + USE
    assert run(program, bootstrap, topic_name("gevent")).startswith("x ")


def test_eventlet_may_replace_threads(bootstrap: str, topic_name: TopicName) -> None:
    """The three loops run in one thread of the system, which asyncio does not allow by itself."""
    pytest.importorskip("eventlet")
    program = "import eventlet; eventlet.monkey_patch()" + IMPORTS + USE
    assert run(program, bootstrap, topic_name("eventlet")).startswith("x ")


SEVERAL = """
import gevent
consumer = Consumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
transactional = Producer(bootstrap_servers=bootstrap, transactional_id=topic)
transactional.init_transactions()
turns = 0


def count():
    global turns
    while True:
        turns += 1
        gevent.sleep(0.001)


def produce(number):
    with Producer(bootstrap_servers=bootstrap) as producer:
        for sent in [producer.send(topic, b"%d-%d" % (number, each)) for each in range(100)]:
            sent.result(60)


gevent.spawn(count)
producers = [gevent.spawn(produce, number) for number in range(4)]
with transactional.transaction():
    transactional.send(topic, b"x")
found = set()
while len(found) < 401:
    found.update(record.value for record in consumer.poll(0.5))
gevent.joinall(producers, raise_error=True)
consumer.close()
transactional.close()
print(len(found), turns > 10)
"""


def test_several_clients_run_beside_each_other_in_greenlets(bootstrap: str, topic_name: TopicName) -> None:
    """Their loops share one thread of the system, where asyncio allows one: the second client failed."""
    pytest.importorskip("gevent")
    program = "from gevent import monkey; monkey.patch_all()" + IMPORTS + SEVERAL
    assert "401 True\n" == run(program, bootstrap, topic_name("greenlets"))


@pytest.mark.parametrize(
    ("module", "enter"),
    [
        ("freezegun", "freezegun.freeze_time('2020-01-01').start()"),
        ("freezegun", "freezegun.freeze_time('2020-01-01', real_asyncio=True).start()"),
        ("time_machine", "time_machine.travel(1577836800, tick=False).start()"),
    ],
)
def test_time_may_stand_still(bootstrap: str, topic_name: TopicName, module: str, enter: str) -> None:
    """Records have that time; time-outs and heartbeats go on."""
    pytest.importorskip(module)
    program = f"{IMPORTS}\nimport {module}\n{enter}\n{USE}"
    assert "x 1577836800000\n" == run(program, bootstrap, topic_name(module.replace("_", "-")))


ASYNC_USE = """
import asyncio
from kalda import AsyncAdmin, AsyncConsumer, AsyncProducer


async def main():
    async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        await (await producer.send(topic, b"x"))
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        assert topic in await admin.list_topics()
    consumer = AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    )
    async with consumer:
        records = []
        while not records:
            records = await consumer.poll(0.5)
        await consumer.commit(timeout_s=20)
        # Ends by the loop's time.
        assert [] == await consumer.poll(0.1)
    print(records[0].value.decode(), records[0].timestamp_ms)


with freezegun.freeze_time("2020-01-01", real_asyncio=True):
    asyncio.run(main())
"""


def test_asynchronous_clients_work_where_only_the_loop_has_the_real_time(
    bootstrap: str, topic_name: TopicName
) -> None:
    """Their loop is the program's: with a frozen one, no time-out ends and nothing lingers to its end."""
    pytest.importorskip("freezegun")
    program = f"{IMPORTS}\nimport freezegun\n{ASYNC_USE}"
    assert "x 1577836800000\n" == run(program, bootstrap, topic_name("freezegun-asyncio"))


def test_a_transaction_ends_where_only_the_loop_has_the_real_time(
    bootstrap: str, topic_name: TopicName
) -> None:
    pytest.importorskip("freezegun")
    program = f"""{IMPORTS}
import freezegun

with freezegun.freeze_time("2020-01-01", real_asyncio=True):
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            sent = producer.send(topic, b"x")
        print(sent.result(60).timestamp_ms)
"""
    assert "1577836800000\n" == run(program, bootstrap, topic_name("freezegun-transaction"))
