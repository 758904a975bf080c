"""The producer's settings: Kafka's names, defaults and the rules between them."""

import pytest

from kalda.clients.errors import ClientConfigError
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.records.compression import Compression


def config(**options: object) -> ProducerConfig:
    return ProducerConfig.from_options({"bootstrap_servers": "localhost:9092", **options})


def test_the_defaults_are_those_of_kafka_4() -> None:
    defaults = config()
    assert "all" == defaults.acks
    assert -1 == defaults.acks_number
    assert defaults.enable_idempotence
    assert 5 == defaults.linger_ms
    assert 16_384 == defaults.batch_size
    assert 32 * 1024 * 1024 == defaults.buffer_memory
    assert 120_000 == defaults.delivery_timeout_ms
    assert 5 == defaults.max_in_flight_requests_per_connection
    assert 1_048_576 == defaults.max_request_size
    assert Compression.NONE is defaults.compression


@pytest.mark.parametrize(
    ("options", "codec", "level"),
    [
        ({"compression_type": "gzip"}, Compression.GZIP, None),
        ({"compression_type": "gzip", "compression_gzip_level": 1}, Compression.GZIP, 1),
        ({"compression_type": "lz4", "compression_lz4_level": 17}, Compression.LZ4, 17),
        ({"compression_type": "zstd", "compression_zstd_level": -5}, Compression.ZSTD, -5),
        ({"compression_type": "snappy"}, Compression.SNAPPY, None),
    ],
)
def test_each_codec_has_its_level(options: dict[str, object], codec: Compression, level: int | None) -> None:
    assert (codec, level) == (config(**options).compression, config(**options).compression_level)


@pytest.mark.parametrize("options", [{"acks": 1}, {"acks": "0"}, {"retries": 0}])
def test_settings_without_idempotence_switch_its_default_off(options: dict[str, object]) -> None:
    """A program that sets acks=1 and does not mention idempotence must work, as with Java."""
    assert not config(**options).enable_idempotence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 1, "enable_idempotence": True}, "`acks`=1; it needs all"),
        ({"retries": 0, "enable_idempotence": True}, "`retries`=0"),
        (
            {"max_in_flight_requests_per_connection": 6},
            "`max.in.flight.requests.per.connection`=6 is above 5",
        ),
        ({"acks": 1, "transactional_id": "t"}, "idempotence is excluded by `acks`=1"),
        ({"enable_idempotence": False, "transactional_id": "t"}, "`transactional.id` needs"),
        ({"delivery_timeout_ms": 100}, "`delivery.timeout.ms`=100 is below .* 30005"),
        ({"compression_gzip_level": 0}, "`compression.gzip.level`=0"),
        (
            {
                "transaction_two_phase_commit_enable": True,
                "transaction_timeout_ms": 5,
                "transactional_id": "t",
            },
            "`transaction.timeout.ms` has no meaning",
        ),
        ({"linger": 5}, "`linger` is not a setting.*did you mean `linger_ms`"),
        ({"acks": 2}, "`acks`=2 is not allowed"),
    ],
)
def test_a_contradiction_is_refused_with_names_and_values(options: dict[str, object], message: str) -> None:
    with pytest.raises(ClientConfigError, match=message):
        config(**options)


def test_more_in_flight_is_allowed_without_idempotence() -> None:
    chosen = config(max_in_flight_requests_per_connection=20, enable_idempotence=False)
    assert 20 == chosen.max_in_flight_requests_per_connection


def test_the_default_delivery_timeout_follows_longer_request_timeouts() -> None:
    assert 200_005 == config(request_timeout_ms=200_000).delivery_timeout_ms


def test_a_client_properties_file_works() -> None:
    read = ProducerConfig.from_properties({"bootstrap.servers": "a:1,b:2", "linger.ms": "7", "acks": "-1"})
    assert 7 == read.linger_ms
    assert -1 == read.acks_number
    assert (("a", 1), ("b", 2)) == read.bootstrap_addresses
