"""Which certificates a broker serves when files and settings change."""

import asyncio
import ssl
from pathlib import Path

import pytest

from kalda.broker.security.broker_tls import BrokerTls
from kalda.common.config_def import ConfigError
from kalda.runtime.background import InlineExecutor
from kalda.settings import BrokerConfig
from tests.unit.security.authorities import NOW, VALID, authority


class Stores:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "broker.pem"
        self.write("broker", ["localhost"])

    def write(self, subject: str, names: list[str]) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(authority().issue(subject, NOW, VALID, names).key_store)
        new.rename(self.path)

    def config(self, **more: str) -> BrokerConfig:
        named = {name.replace("_", "."): value for name, value in more.items()}
        return BrokerConfig.from_properties(
            {
                "listeners": "OUT://:9093,IN://:9092",
                "listener.security.protocol.map": "OUT:SSL,IN:PLAINTEXT",
                "inter.broker.listener.name": "IN",
                "listener.name.out.ssl.keystore.type": "PEM",
                "listener.name.out.ssl.keystore.location": str(self.path),
                **named,
            }
        )


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def reloaded(tls: BrokerTls, *, is_forced: bool = False) -> ssl.SSLContext:
    asyncio.run(tls.reload(is_forced=is_forced))
    listener = tls.listener("OUT")
    assert listener is not None
    return listener.context


def test_only_listeners_with_tls_have_a_context(stores: Stores) -> None:
    tls = BrokerTls(stores.config(), InlineExecutor())
    assert tls.listener("OUT") is not None
    assert tls.listener("IN") is None
    assert tls.client("IN") is None


def test_a_changed_file_gives_a_new_context_and_an_unchanged_one_does_not(stores: Stores) -> None:
    tls = BrokerTls(stores.config(), InlineExecutor())
    first = reloaded(tls)
    assert first is reloaded(tls)
    stores.write("broker", ["localhost", "broker.example"])
    second = reloaded(tls)
    assert first is not second
    assert second is reloaded(tls)


@pytest.mark.parametrize(
    ("subject", "names", "allowed_by"),
    [
        ("mallory", ["localhost"], "ssl_allow_dn_changes"),
        ("broker", ["elsewhere"], "ssl_allow_san_changes"),
    ],
)
def test_a_certificate_of_somebody_else_is_not_taken(
    stores: Stores,
    caplog: pytest.LogCaptureFixture,
    subject: str,
    names: list[str],
    allowed_by: str,
) -> None:
    strict, lenient = (
        BrokerTls(stores.config(), InlineExecutor()),
        BrokerTls(stores.config(**{allowed_by: "true"}), InlineExecutor()),
    )
    first = reloaded(strict)
    other = reloaded(lenient)
    stores.write(subject, names)
    assert first is reloaded(strict)
    assert allowed_by.replace("_", ".") in caplog.text
    assert other is not reloaded(lenient)


def test_a_damaged_file_is_logged_once_and_the_former_context_stays(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    tls = BrokerTls(stores.config(), InlineExecutor())
    first = reloaded(tls)
    stores.path.write_text("junk")
    assert first is reloaded(tls)
    assert first is reloaded(tls)
    assert 1 == caplog.text.count("has no private key")
    stores.write("broker", ["localhost"])
    assert first is not reloaded(tls)


def test_a_change_of_settings_is_checked_with_its_stores(stores: Stores) -> None:
    config = stores.config()
    tls = BrokerTls(config, InlineExecutor())
    setting = "listener.name.out.ssl.keystore.location"
    with pytest.raises(ConfigError, match="/none"):
        tls.validate(config.with_dynamic({setting: "/none"}, {}))
    tls.validate(config.with_dynamic({setting: str(stores.path)}, {}))


def test_a_missing_key_store_is_named(stores: Stores) -> None:
    with pytest.raises(ConfigError, match="listener OUT: a listener with TLS needs a key store"):
        BrokerTls(
            BrokerConfig.from_properties(
                {
                    "listeners": "OUT://:9093",
                    "listener.security.protocol.map": "OUT:SSL",
                    "inter.broker.listener.name": "OUT",
                }
            ),
            InlineExecutor(),
        )


def test_the_name_of_a_listener_is_written_in_lower_case(stores: Stores) -> None:
    with pytest.raises(ConfigError, match="lower case"):
        stores.config(listener_name_OUT_ssl_client_auth="required")
