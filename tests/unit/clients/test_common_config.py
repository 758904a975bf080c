import pickle
from enum import Enum

import pytest

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import ClientConfigError

SERVERS = {"bootstrap.servers": "a:1"}


class Level(Enum):
    DEBUG = "DEBUG"


def test_keyword_options_have_python_types() -> None:
    config = CommonClientConfig.from_options(
        {
            "bootstrap_servers": ["a:1", "[::1]:2", "SASL_SSL://b-1.x_y:3"],
            "client_id": "me",
            "request_timeout_ms": 5,
            "enable_metrics_push": False,
            "retry_backoff_ms": None,
            "metrics_recording_level": Level.DEBUG,
        }
    )

    assert (("a", 1), ("::1", 2), ("b-1.x_y", 3)) == config.bootstrap_addresses
    assert ("me", 5, False, 100, "DEBUG") == (
        config.client_id,
        config.request_timeout_ms,
        config.enable_metrics_push,
        config.retry_backoff_ms,
        config.metrics_recording_level,
    )


def test_properties_have_kafkas_names_and_texts() -> None:
    config = CommonClientConfig.from_properties(
        {
            "bootstrap.servers": "a:1, b:2",
            "request.timeout.ms": " 5 ",
            "enable.metrics.push": "FALSE",
            "connections.max.idle.ms": "-1",
            "security.protocol": "PLAINTEXT",
        }
    )

    assert ("a:1", "b:2") == config.bootstrap_servers
    assert (5, False, -1) == (
        config.request_timeout_ms,
        config.enable_metrics_push,
        config.connections_max_idle_ms,
    )


@pytest.mark.parametrize("servers", ["a:1,b:2", ["a:1", "b:2"], ("a:1", "b:2"), {"a:1": 0, "b:2": 0}.keys()])
def test_servers_may_be_one_text_or_any_collection(servers: object) -> None:
    config = CommonClientConfig.from_options({"bootstrap_servers": servers})

    assert (("a", 1), ("b", 2)) == config.bootstrap_addresses


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"request.timeout.ms": "1s"},
            r"`request.timeout.ms`=1s is not allowed: it takes an int, at least 0",
        ),
        ({"request.timeout.ms": "-1"}, r"`request.timeout.ms`=-1 is not allowed"),
        ({"request.timeout.ms": 1.5}, r"`request.timeout.ms`=1.5 is not allowed: it takes an int"),
        ({"request.timeout.ms": True}, r"`request.timeout.ms`=true is not allowed: it takes an int"),
        ({"request.timeout.ms": 2**31}, r"`request.timeout.ms`=2147483648 is not allowed"),
        ({"enable.metrics.push": 1}, r"`enable.metrics.push`=1 is not allowed: it takes true or false"),
        ({"client.dns.lookup": "default"}, r"one of use_all_dns_ips, resolve_canonical"),
        ({"metadata.recovery.strategy": "retry"}, r"one of rebootstrap, none"),
        (
            {"request.timeout": "5"},
            r"`request.timeout` is not a setting .*; did you mean `request.timeout.ms`\?",
        ),
        ({"zzz": "5"}, r"`zzz` is not a setting of this client$"),
        ({"bootstrap.servers": "a"}, r"`bootstrap.servers` has 'a', which is not host:port"),
        ({"bootstrap.servers": "a:1;b:1"}, r"has 'a:1;b:1', which is not host:port"),
        ({"bootstrap.servers": "a b:1"}, r"has 'a b:1', which is not host:port"),
        ({"bootstrap.servers": ""}, r"`bootstrap.servers` is missing"),
        (
            {"bootstrap.servers": b"a:1"},
            r"`bootstrap.servers`=b'a:1' is not allowed: it takes a comma-separated list, not bytes",
        ),
        ({"client.id": {"a": 1}}, r"`client.id`={'a': 1} is not allowed: it takes a string, not dict"),
        ({"client.id": ["a", 1]}, r"`client.id`=.* it takes a string, not list"),
    ],
)
def test_a_refusal_names_the_setting_the_value_and_what_is_allowed(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(ClientConfigError, match=message):
        CommonClientConfig.from_properties(SERVERS | given)


def test_an_unknown_keyword_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ClientConfigError, match=r"`request_timeout` .*did you mean `request_timeout_ms`\?"):
        CommonClientConfig.from_options({"bootstrap_servers": "a:1", "request_timeout": 5})


def test_servers_are_required() -> None:
    with pytest.raises(ClientConfigError, match=r"`bootstrap.servers` is missing; set it to host:port"):
        CommonClientConfig.from_options({"client_id": "me"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.login.class", "com.example.Login"),
        ("ssl.provider", "BC"),
    ],
)
def test_a_setting_that_protects_is_refused_while_it_has_no_effect(name: str, value: str) -> None:
    """A user could believe that a connection is encrypted when the setting is accepted and ignored."""
    with pytest.raises(ClientConfigError, match=rf"`{name}`=.* which Kalda does not have: "):
        CommonClientConfig.from_properties(SERVERS | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.protocol", "PLAINTEXT"),
        ("security.protocol", "plaintext"),
        ("sasl.mechanism", "GSSAPI"),
        ("ssl.truststore.location", ""),
        ("ssl.endpoint.identification.algorithm", ""),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"),
    ],
)
def test_a_security_setting_that_asks_for_nothing_passes(name: str, value: str) -> None:
    """Files for Kafka's tools often name the defaults."""
    CommonClientConfig.from_properties(SERVERS | {name: value})


def test_a_configuration_with_tls_can_be_sent_to_another_process() -> None:
    config = CommonClientConfig.from_properties(SERVERS | {"security.protocol": "SSL"})
    assert config.tls is not None
    copy = pickle.loads(pickle.dumps(config))
    assert "SSL" == copy.security_protocol
    assert copy.tls is not None


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ClientConfigError) as caught:
        CommonClientConfig.from_properties(
            SERVERS
            | {
                "security.protocol": "SSL",
                "ssl.keystore.location": "/none",
                "ssl.keystore.password": "topsecret",
            }
        )
    assert "topsecret" not in str(caught.value)
    assert "/none" in str(caught.value)
    with pytest.raises(ClientConfigError) as caught:
        CommonClientConfig.from_properties(SERVERS | {"sasl.jaas.config": 'X required password="topsecret"'})
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metric.reporters", ""),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("auto.include.jmx.reporter", "true"),
    ],
)
def test_java_settings_without_a_meaning_here_pass_where_they_are_harmless(name: str, value: str) -> None:
    CommonClientConfig.from_properties(SERVERS | {name: value})


def test_a_java_class_that_would_have_to_run_is_refused() -> None:
    with pytest.raises(ClientConfigError, match=r"`metric.reporters`=com.example.Reporter"):
        CommonClientConfig.from_properties(SERVERS | {"metric.reporters": "com.example.Reporter"})


def test_an_admin_client_has_javas_name_and_pushes_no_metrics() -> None:
    """Programs with many clients tell them apart by `client.id`; an admin client lives for few calls."""
    first, second = (AdminConfig.from_options({"bootstrap_servers": "h:1"}) for _ in range(2))
    assert first.client_id.startswith("adminclient-")
    assert int(first.client_id.removeprefix("adminclient-")) + 1 == int(
        second.client_id.removeprefix("adminclient-")
    )
    assert "mine" == AdminConfig.from_options({"bootstrap_servers": "h:1", "client_id": "mine"}).client_id
    assert not first.enable_metrics_push
