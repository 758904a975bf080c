import pytest

from kalda.net.client.bootstrap_servers import parse_bootstrap_servers
from kalda.net.client.client_config import ClientConfig, IsolationLevel
from kalda.net.client.client_errors import ClientConfigError


def test_settings_by_kafkas_names() -> None:
    config = ClientConfig.from_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "client.id": "me",
            "isolation.level": "read_committed",
            "check.crcs": "false",
            "max.partition.fetch.bytes": "5",
            "security.protocol": "plaintext",
        }
    )

    assert (("a", 1), ("b", 2)) == config.bootstrap_servers
    assert ("me", IsolationLevel.READ_COMMITTED, False, 5) == (
        config.client_id,
        config.isolation_level,
        config.check_crcs,
        config.max_partition_fetch_bytes,
    )


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("host:9092", (("host", 9092),)),
        (" a:1 , b:2 ,", (("a", 1), ("b", 2))),
        ("[::1]:9092", (("::1", 9092),)),
    ],
)
def test_bootstrap_servers(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    assert servers == parse_bootstrap_servers(text)


@pytest.mark.parametrize(
    "text", ["", " , ", "host", ":9092", "host:", "host:0", "host:65536", "host:x", "host:-1"]
)
def test_bad_bootstrap_servers(text: str) -> None:
    with pytest.raises(ClientConfigError, match=r"bootstrap\.servers"):
        parse_bootstrap_servers(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"request.timeout.ms": "0"}, "`request.timeout.ms`=0 is below 1"),
        ({"request.timeout.ms": "1s"}, "`request.timeout.ms`='1s' is not an integer"),
        ({"isolation.level": "serializable"}, "neither read_uncommitted nor read_committed"),
        ({"check.crcs": "yes"}, "neither true nor false"),
        ({"security.protocol": "SSL"}, "only PLAINTEXT"),
        ({"sasl.mechanism": "PLAIN"}, "will not ignore a security setting"),
        ({"ssl.cafile": "x"}, "will not ignore a security setting"),
        ({"max.poll.records": "5"}, "not a setting of this client; known: .*bootstrap.servers"),
    ],
)
def test_refusals_name_the_setting(given: dict[str, str], message: str) -> None:
    with pytest.raises(ClientConfigError, match=message):
        ClientConfig.from_properties({"bootstrap.servers": "a:1"} | given)


def test_servers_are_required() -> None:
    with pytest.raises(ClientConfigError, match=r"`bootstrap.servers` is missing"):
        ClientConfig.from_properties({})
