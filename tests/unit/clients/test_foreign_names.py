"""A setting by another client's name is named in ours, in code and in a properties file."""

import inspect

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.config.foreign_names import REMARKS, SETTINGS
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.errors import ClientConfigError
from kalda.clients.producer.producer_config import ProducerConfig

CONFIGS = (ProducerConfig, ConsumerConfig, AdminConfig)
OURS = {name for config in CONFIGS for name in config.definitions()}
ARGUMENTS = {"self", "topics", "loop", "key_serializer", "value_serializer", "partitioner"}
"""What is no setting, or an argument of ours too."""

KAFKA_PYTHON = {
    name
    for client in (kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient)
    for name in client.DEFAULT_CONFIG
}
AIOKAFKA = {
    name
    for client in (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer, AIOKafkaAdminClient)
    for name in inspect.signature(client.__init__).parameters
}
LIBRDKAFKA = [
    ("sasl.username", None),
    ("sasl.password", None),
    ("ssl.ca.location", None),
    ("metadata.broker.list", "bootstrap.servers"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("message.timeout.ms", "delivery.timeout.ms"),
    ("request.required.acks", "acks"),
    ("compression.codec", "compression.type"),
    ("fetch.wait.max.ms", "fetch.max.wait.ms"),
    ("sasl.mechanisms", "sasl.mechanism"),
    ("ssl.key.location", "ssl.keystore.location"),
    ("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
]


@pytest.mark.parametrize("name", sorted((KAFKA_PYTHON | AIOKAFKA) - OURS - ARGUMENTS))
def test_each_setting_of_other_python_clients_is_known(name: str) -> None:
    assert (name in SETTINGS) != (name in REMARKS)


def test_what_takes_the_place_of_a_name_is_a_setting() -> None:
    assert set() == set(SETTINGS.values()) - OURS
    assert set() == (SETTINGS.keys() | REMARKS.keys()) & OURS


@pytest.mark.parametrize(("theirs", "ours"), LIBRDKAFKA)
def test_settings_of_librdkafka_are_named_in_a_properties_file(theirs: str, ours: str | None) -> None:
    def owner(name: str) -> type[CommonClientConfig]:
        attribute = name.replace(".", "_")
        return next(config for config in CONFIGS if attribute in config.definitions())

    if ours is None:
        owner(theirs).options_of({theirs: "x"})
        return
    with pytest.raises(ClientConfigError, match=f"`{theirs}` is not a setting .*; here it is `{ours}`"):
        owner(ours).options_of({theirs: "x"})


def test_a_keyword_of_another_client_is_named_by_our_keyword() -> None:
    with pytest.raises(
        ClientConfigError, match=r"`ssl_cafile` is not a setting .*; here it is `ssl_ca_location`"
    ):
        AdminConfig.from_options({"ssl_cafile": "ca.pem"})
    with pytest.raises(
        ClientConfigError, match=r"`consumer_timeout_ms` is not a setting .*: give `poll` its time"
    ):
        ConsumerConfig.from_options({"consumer_timeout_ms": 5})


SECURE = {"bootstrap_servers": "b:1", "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sasl_username": "a"}, "`sasl.password` is missing"),
        ({"sasl_password": "s"}, "`sasl.username` is missing"),
        ({"sasl_username": "a", "sasl_password": "s", "sasl_mechanism": "GSSAPI"}, "set it to PLAIN, SCRAM"),
        (
            {
                "sasl_username": "a",
                "sasl_password": "s",
                "sasl_jaas_config": 'PlainLoginModule required username="a" password="s";',
            },
            "contradict each other",
        ),
        (
            {"security_protocol": "SSL", "ssl_ca_location": "a", "ssl_truststore_location": "b"},
            "`ssl.ca.location`=a and `ssl.truststore.*` contradict",
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "/none"}, "/none"),
    ],
)
def test_a_login_that_is_not_whole_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ClientConfigError) as caught:
        AdminConfig.from_options({**SECURE, **options})
    assert message in str(caught.value)
    assert "=s" not in str(caught.value)


def test_a_name_and_a_password_are_a_login() -> None:
    """No text in the format of JAAS, in which a password must be quoted."""
    config = AdminConfig.from_options({**SECURE, "sasl_username": "a", "sasl_password": 'x";'})
    assert config.login is not None
    assert b'\x00a\x00x";' == config.login("b").respond(b"")
