"""Clients, records and results are shown at a glance."""

import asyncio
import inspect
import re

import pytest

import kalda
from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.reprs import VALUE_CHARACTERS_MAX, html_table, short
from kalda.clients.share.share_config import ShareConsumerConfig

DEAD = "127.0.0.1:1"


def test_clients_show_where_they_connect_and_whether_they_are_open() -> None:
    with kalda.Producer(bootstrap_servers=DEAD, client_id="p") as producer:
        assert f"<Producer {DEAD} client_id=p open>" == repr(producer)
    assert f"<Producer {DEAD} client_id=p closed>" == repr(producer)
    with kalda.Consumer(bootstrap_servers=DEAD, client_id="c", group_id="g") as consumer:
        assert f"<Consumer {DEAD} client_id=c group_id=g open>" == repr(consumer)
    assert f"<Consumer {DEAD} client_id=c group_id=g closed>" == repr(consumer)
    with kalda.Admin(bootstrap_servers=DEAD, client_id="a") as admin:
        assert f"<Admin {DEAD} client_id=a open>" == repr(admin)
    assert f"<Admin {DEAD} client_id=a closed>" == repr(admin)


def test_clients_for_asyncio_do_too() -> None:
    async def main() -> None:
        producer = kalda.AsyncProducer(bootstrap_servers=DEAD, client_id="p")
        assert f"<AsyncProducer {DEAD} client_id=p open>" == repr(producer)
        await producer.close()
        assert f"<AsyncProducer {DEAD} client_id=p closed>" == repr(producer)
        consumer = kalda.AsyncConsumer(bootstrap_servers=DEAD, client_id="c")
        assert f"<AsyncConsumer {DEAD} client_id=c not started>" == repr(consumer)
        await consumer.start()
        assert f"<AsyncConsumer {DEAD} client_id=c open>" == repr(consumer)
        await consumer.close()
        assert f"<AsyncConsumer {DEAD} client_id=c closed>" == repr(consumer)
        async with kalda.AsyncAdmin(bootstrap_servers=DEAD, client_id="a") as admin:
            assert f"<AsyncAdmin {DEAD} client_id=a open>" == repr(admin)
        assert f"<AsyncAdmin {DEAD} client_id=a closed>" == repr(admin)

    asyncio.run(main())


CLIENTS = [
    *("Producer", "AsyncProducer", "Consumer", "AsyncConsumer"),
    *("ShareConsumer", "AsyncShareConsumer", "Admin", "AsyncAdmin"),
]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_whose_constructor_failed_can_be_shown(name: str) -> None:
    """A debugger shows it."""
    client = getattr(kalda, name)
    assert f"<{name} closed>" == repr(object.__new__(client))


def test_long_values_are_cut() -> None:
    assert "b'short'" == short(b"short")
    assert f"b'{'x' * VALUE_CHARACTERS_MAX}'... (1000 bytes)" == short(b"x" * 1000)
    assert f"'{'x' * VALUE_CHARACTERS_MAX}'... (1000 characters)" == short("x" * 1000)
    assert short(list(range(1000))).endswith("...")
    record = kalda.ProducerRecord(topic="t", value=b"x" * 1_000_000)
    assert len(repr(record)) < 2 * VALUE_CHARACTERS_MAX + 200
    assert repr(record).startswith("ProducerRecord(topic='t', value=b'xxx")
    consumed = kalda.ConsumerRecord(
        "t", 0, 5, 1, kalda.TimestampType.CREATE_TIME, b"k", b"v" * 1000, (), 1, 1000, None
    )
    assert repr(consumed).startswith("ConsumerRecord(topic='t', partition=0, offset=5, timestamp_ms=1, ")
    assert "... (1000 bytes), headers=()" in repr(consumed)
    shared = kalda.ShareRecord(*consumed, 3)
    assert repr(shared).startswith("ShareRecord(topic='t', partition=0, offset=5, timestamp_ms=1, ")
    assert repr(shared).endswith("delivery_count=3)")
    outcomes = kalda.Outcomes({"a": b"x" * 1000}, {"b": kalda.ClientError("not authorised")})
    assert len(repr(outcomes)) < 2 * VALUE_CHARACTERS_MAX


def test_notebooks_get_tables() -> None:
    outcomes = kalda.Outcomes({"a": 3}, {"<b>": kalda.ClientError("not authorised")})
    shown = outcomes._repr_html_()
    assert "<tr><td>a</td><td>3</td></tr><tr><td>&lt;b&gt;</td><td>not authorised</td></tr>" in shown
    topic = kalda.TopicDescription("flights", None, False, ())
    assert "<td>name</td><td>flights</td>" in topic._repr_html_()
    assert "and 50 more" in html_table(("x",), [(str(each),) for each in range(150)])


@pytest.mark.parametrize("name", CLIENTS)
def test_help_lists_the_settings_with_their_defaults(name: str) -> None:
    shown = inspect.getdoc(getattr(kalda, name)) or ""
    kinds = {
        "Producer": ProducerConfig,
        "Consumer": ConsumerConfig,
        "ShareConsumer": ShareConsumerConfig,
        "Admin": AdminConfig,
    }
    kind = kinds[name.removeprefix("Async")]
    settings = shown.partition("Settings, with their defaults")[2]
    assert sorted(kind.definitions()) == sorted(re.findall(r"(\w+)=", settings))
