"""Settings of `kalda http`, from its own files and from those of Confluent's registry."""

from pathlib import Path

import pytest

from kalda.clients.errors import ClientConfigError
from kalda.common.config_def import ConfigError
from kalda.http.reference import PAGE, page
from kalda.http.settings import HttpSettings

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
CLIENT = {"bootstrap.servers": "127.0.0.1:9092"}


def test_the_committed_page_is_current() -> None:
    """Else: python -m kalda.http.reference docs/reference"""
    assert page() == (REFERENCE / PAGE).read_text()


def test_a_file_of_confluents_registry_is_read() -> None:
    settings = HttpSettings.read(
        {
            "listeners": "http://0.0.0.0:8081",
            "kafkastore.bootstrap.servers": "SASL_SSL://b1:9093,SASL_SSL://b2:9093",
            "kafkastore.security.protocol": "SASL_SSL",
            "kafkastore.sasl.mechanism": "PLAIN",
            "kafkastore.sasl.jaas.config": 'x.PlainLoginModule required username="u" password="p";',
            "kafkastore.topic": "_other",
            "debug": "false",
            "avro.compatibility.level": "full",
            "master.eligibility": "false",
        },
        {},
    )

    assert "b1:9093,b2:9093" == settings.client["bootstrap.servers"]
    assert "SASL_SSL" == settings.client["security.protocol"]
    assert ("_other", "full", False) == (
        settings.kafkastore_topic,
        settings.schema_compatibility_level,
        settings.leader_eligibility,
    )
    assert settings.needs_login
    assert (8081, False) == (settings.listener.port, settings.listener.is_tls)


def test_the_options_win_over_the_listener() -> None:
    settings = HttpSettings.read({"listeners": "https://0.0.0.0:8443"}, CLIENT, host="::1", port=0)

    assert ("::1", 0, True) == (settings.listener.host, settings.listener.port, settings.listener.is_tls)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "http://a:1,http://b:2"),
        ("listeners", "ftp://a:1"),
        ("listeners", "http://a:99999"),
        ("http.parts", "registry,shop"),
        ("schema.compatibility.level", "sideways"),
        ("kafkastore.topik", "x"),
        ("leader.eligibilty", "true"),
    ],
)
def test_what_is_not_allowed_is_named(name: str, value: str) -> None:
    with pytest.raises((ConfigError, ClientConfigError)) as error:
        HttpSettings.read({name: value}, CLIENT)

    assert name.removeprefix("kafkastore.") in str(error.value)
