"""What the clients say about settings and times in the form of other clients."""

import logging
from typing import Any

import pytest

import kalda
from kalda.clients import argument_checks
from kalda.clients.argument_checks import check_timeout

CLIENTS: list[Any] = [
    kalda.Producer,
    kalda.AsyncProducer,
    kalda.Consumer,
    kalda.AsyncConsumer,
    kalda.ShareConsumer,
    kalda.AsyncShareConsumer,
    kalda.Admin,
    kalda.AsyncAdmin,
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_dict_of_settings_is_refused_with_the_form_that_takes_one(client: Any) -> None:
    """confluent-kafka's constructors take one."""
    with pytest.raises(TypeError, match=rf"{client.__name__}\.from_config\(\{{\.\.\.\}}\) takes one"):
        client({"bootstrap.servers": "b:1"})


@pytest.mark.parametrize("client", [each for each in CLIENTS if "Consumer" not in each.__name__])
def test_an_address_is_refused_with_the_name_that_it_needs(client: Any) -> None:
    """A consumer takes names of topics there."""
    with pytest.raises(TypeError, match=rf"{client.__name__}\(bootstrap_servers='b:1'\)"):
        client("b:1")


def test_a_time_that_looks_like_milliseconds_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """`poll(1000)` of other clients waits a second; here it is a quarter of an hour."""
    argument_checks.warn_of_milliseconds.cache_clear()
    with caplog.at_level(logging.WARNING, argument_checks.__name__):
        for timeout_s in (0.5, 600, 1000.0, 1000, 1000):
            check_timeout(timeout_s)
    assert ["timeout_s=1000 waits up to 1000 seconds; the unit is seconds."] == caplog.messages


def test_pandas_is_missed_before_records_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position would be behind records that nobody has seen."""
    monkeypatch.setattr("kalda.common.extras.find_spec", lambda _: None)
    with kalda.Consumer("t", bootstrap_servers="b:1") as consumer:
        with pytest.raises(ModuleNotFoundError, match=r"poll_pandas needs .* pandas; .*'\.\[arrow\]'"):
            consumer.poll_pandas()
        assert [] == consumer.poll(timeout_s=0)


def test_serializers_have_the_names_that_deserializers_have() -> None:
    with kalda.Producer(bootstrap_servers="b:1", value_serializer="StringSerializer"):  # type: ignore[arg-type]  # the point
        pass
    with pytest.raises(kalda.ClientConfigError, match=r"`kalda\.serializers\.json\(\)`"):
        kalda.Producer(bootstrap_servers="b:1", value_serializer="json")  # type: ignore[arg-type]  # the point


def test_methods_of_other_clients_are_missing_with_their_counterparts() -> None:
    """Python's own suggestions know names that are nearly the same, not those that mean the same."""
    record: Any = kalda.ConsumerRecord(
        "t", 0, 7, 1, kalda.TimestampType.CREATE_TIME, None, None, (), -1, -1, None
    )
    with kalda.Producer(bootstrap_servers="b:1") as producer:
        objects: list[tuple[Any, str, str]] = [
            (producer, "produce", "`send"),
            (kalda.RecordFuture.__new__(kalda.RecordFuture), "get", "`result"),
            (record, "timestamp", "`timestamp_ms`"),
        ]
        for thing, name, counterpart in objects:
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'; here it is: {counterpart}"):
                getattr(thing, name)
        with pytest.raises(AttributeError, match=r"'Producer' object has no attribute 'sendd'$"):
            producer.sendd  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(record, "checksum")
