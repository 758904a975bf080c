"""What `kalda mcp` lets out: bounded, and without secrets."""

import pytest

from kalda.clients.admin.configs import ConfigEntry, ConfigSource, ConfigSynonym
from kalda.tools.mcp.answers import (
    ANSWER_CHARACTERS_MAX,
    TEXT_MAX,
    bytes_answer,
    fitted,
    is_secret,
    setting_answer,
)
from kalda.tools.mcp.writes import audited

STATIC, DEFAULT = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "ssl.keystore.key",
        "sasl.jaas.config",
        "listener.name.clients.plain.sasl.jaas.config",
        "password.encoder.secret",
        "delegation.token.master.key",
        "kalda.schema.registry.basic.auth.user.info",
        "kalda.schema.registry.bearer.auth.token",
        "metrics.login",
    ],
)
def test_the_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "retention.ms",
        "delegation.token.max.lifetime.ms",
        "password.encoder.iterations",
        "ssl.keystore.location",
    ],
)
def test_other_settings_are_shown(name: str) -> None:
    assert not is_secret(name)


def test_a_secret_is_hidden_even_if_the_broker_sends_it() -> None:
    """Brokers hide what they know to be a secret; a plug-in's setting may be sent as it is."""
    synonyms = (
        ConfigSynonym("sasl.jaas.config", "s3cret", STATIC),
        ConfigSynonym("sasl.jaas.config", "s3cret", DEFAULT),
    )
    answer = setting_answer(ConfigEntry("sasl.jaas.config", "s3cret", STATIC, synonyms=synonyms))

    assert {"name": "sasl.jaas.config", "value": "(hidden)", "origin": "static_broker_config"} == answer


def test_a_setting_is_shown_with_where_its_value_is_from() -> None:
    synonyms = (
        ConfigSynonym("log.retention.ms", "1", STATIC),
        ConfigSynonym("log.retention.hours", "168", DEFAULT),
    )
    answer = setting_answer(ConfigEntry("retention.ms", "1", STATIC, synonyms=synonyms))

    assert ("1", "static_broker_config") == (answer["value"], answer["origin"])
    assert ["log.retention.ms", "log.retention.hours"] == [each["name"] for each in answer["origins"]]


def test_values_are_cut_and_say_so() -> None:
    cut = bytes_answer(b"x" * (TEXT_MAX + 1))

    assert {"text": "x" * TEXT_MAX, "is_cut": True, "bytes": TEXT_MAX + 1} == cut
    assert "x" * TEXT_MAX == bytes_answer(b"x" * TEXT_MAX)


def test_records_are_left_out_until_the_answer_fits() -> None:
    records = [{"value": "x" * 1000}] * 200
    answer = fitted({"topic": "t"}, "records", records)

    assert 200 == len(answer["records"]) + answer["left_out"]
    assert ANSWER_CHARACTERS_MAX // 1100 < len(answer["records"]) < ANSWER_CHARACTERS_MAX // 1000


def test_the_audit_log_has_no_values_of_secrets() -> None:
    given = {"kind": "broker", "set_values": {"ssl.key.password": "s3cret", "log.retention.ms": "1"}}

    assert {"kind": "broker", "set_values": {"ssl.key.password": "(hidden)", "log.retention.ms": "1"}} == (
        audited(given)
    )
