"""Passwords among dynamic settings: encrypted in ZooKeeper, in force in the broker, shown nowhere."""

import logging
from collections.abc import Mapping
from typing import cast

import pytest

from kalda.cluster.cluster_store import ClusterStore
from kalda.common.config_def import ConfigError
from kalda.common.errors import ErrorCode
from kalda.security.password_encoder import Encoding, PasswordEncoder
from kalda.settings import BrokerConfig
from kalda.settings.stored_passwords import StoredPasswords
from tests.unit.broker.admin_fakes import AdminHarness
from tests.unit.broker.test_config_admin import BROKER, DELETE, SET, change, described

NAME = "listener.name.inside.ssl.keystore.password"
JAAS = "listener.name.inside.plain.sasl.jaas.config"
MODULE = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="hunter2";'
SECRETS = {"password.encoder.secret": "one", "password.encoder.iterations": "1024"}
KEY = ("brokers", "0")


class Following:
    async def close(self) -> None:
        pass


async def started(stored: Mapping[str, str], **settings: str) -> AdminHarness:
    """A broker that finds these settings of its own in ZooKeeper."""
    harness = AdminHarness(
        settings={**SECRETS, **{name.replace("_", "."): value for name, value in settings.items()}}
    )
    harness.cluster.stored[KEY] = dict(stored)

    async def watch_config_changes(callback: object) -> Following:
        return Following()

    harness.cluster.watch_config_changes = watch_config_changes  # type: ignore[attr-defined]  # as Cluster has it
    await harness.store.start(cast("ClusterStore", harness.cluster), 0)
    return harness


def encoded(secret: str, password: str) -> str:
    return PasswordEncoder(secret, Encoding(iterations=1024)).encode(password)


def decoded(secret: str, text: str) -> str:
    return PasswordEncoder(secret, Encoding()).decode(text)


@pytest.mark.parametrize(("name", "value"), [(NAME, "hunter2"), (JAAS, MODULE)])
async def test_a_password_is_stored_encrypted_and_shown_nowhere(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    harness = AdminHarness(settings=SECRETS)
    assert (ErrorCode.NONE, None) == await change(
        harness, BROKER, "0", (name, SET, value), ("num.replica.fetchers", SET, "2")
    )
    stored = harness.cluster.stored[KEY]
    assert value == decoded("one", stored[name])
    assert "2" == stored["num.replica.fetchers"]
    assert value == harness.config.value(name)
    [entry] = described(harness, BROKER, "0", name, synonyms=True).configs
    assert (None, True, False) == (entry.value, entry.is_sensitive, entry.read_only)
    assert [None] == [each.value for each in entry.synonyms]
    assert "hunter2" not in caplog.text
    assert f"set {name}=[hidden]" in caplog.text


async def test_without_a_secret_no_password_is_stored() -> None:
    harness = AdminHarness()
    for is_dry in (True, False):
        code, message = await change(harness, BROKER, "0", (NAME, SET, "hunter2"), validate_only=is_dry)
        assert ErrorCode.INVALID_REQUEST == code
        assert "Password encoder secret not configured" in str(message)
        assert "hunter2" not in str(message)
    assert {} == harness.cluster.stored


@pytest.mark.parametrize(
    ("name", "setting", "part"),
    [
        ("", NAME, "can be changed per broker only"),
        ("0", "ssl.keystore.password", "can be changed per listener only"),
        ("0", "password.encoder.secret", "cannot change while the broker runs"),
        ("0", "zookeeper.ssl.keystore.password", "cannot change while the broker runs"),
    ],
)
async def test_passwords_belong_to_a_listener_of_one_broker(name: str, setting: str, part: str) -> None:
    code, message = await change(AdminHarness(settings=SECRETS), BROKER, name, (setting, SET, "hunter2"))
    assert ErrorCode.INVALID_REQUEST == code
    assert part in str(message)


async def test_other_changes_keep_stored_passwords_as_they_are() -> None:
    """Even one that this broker cannot decrypt, since its secret may be set again."""
    ours, lost = encoded("one", "ours"), encoded("gone", "lost")
    other = NAME.replace("inside", "other")
    harness = await started({NAME: ours, other: lost})
    await change(harness, BROKER, "0", ("num.replica.fetchers", SET, "2"))
    assert {NAME: ours, other: lost, "num.replica.fetchers": "2"} == harness.cluster.stored[KEY]
    await change(harness, BROKER, "0", (NAME, DELETE, None), (other, SET, "new"))
    stored = harness.cluster.stored[KEY]
    assert {other, "num.replica.fetchers"} == set(stored)
    assert "new" == decoded("one", stored[other])


async def test_a_start_decrypts_what_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be decrypted is logged and left out; the log holds none of it."""
    damaged = encoded("gone", "hunter2")
    harness = await started({NAME: encoded("one", "x"), JAAS: damaged, "num.replica.fetchers": "2"})
    assert "x" == harness.config.value(NAME)
    assert 2 == harness.config.num_replica_fetchers
    assert harness.config.jaas("inside", "PLAIN") is None
    assert f"`{JAAS}` cannot be decrypted and is left out" in caplog.text
    assert damaged not in caplog.text


async def test_a_change_of_the_secret_encrypts_stored_passwords_again() -> None:
    """What is encrypted with the new secret already stays: the old one may be left in the file."""
    new = encoded("two", "new")
    other = NAME.replace("inside", "other")
    harness = await started(
        {NAME: encoded("one", "old"), other: new, "num.replica.fetchers": "2"},
        password_encoder_secret="two",
        password_encoder_old_secret="one",
    )
    stored = harness.cluster.stored[KEY]
    assert ("old", new, "2") == (decoded("two", stored[NAME]), stored[other], stored["num.replica.fetchers"])
    assert ("old", "new") == (harness.config.value(NAME), harness.config.value(other))


@pytest.mark.parametrize(
    "setting", ["max.connections.per.ip", "max.connections", "listener.name.plaintext.max.connections"]
)
async def test_stored_limits_of_connections_are_in_force(setting: str) -> None:
    """They are declared with a mark that is only for forms of them that Kalda does not have."""
    harness = await started({setting: "7"})
    assert 7 == harness.config.value(setting)


async def test_an_old_secret_without_passwords_writes_nothing() -> None:
    harness = await started({"num.replica.fetchers": "2"}, password_encoder_old_secret="none")
    assert {"num.replica.fetchers": "2"} == harness.cluster.stored[KEY]


async def test_a_key_stores_password_may_come_from_zookeeper_only() -> None:
    """So that no file has it; Kafka documents this for the first start."""
    settings = {
        **SECRETS,
        "listeners": "INSIDE://:0",
        "listener.security.protocol.map": "INSIDE:SSL",
        "inter.broker.listener.name": "INSIDE",
        "ssl.keystore.location": "/k.jks",
    }
    config = BrokerConfig.from_properties(settings)
    config.apply_dynamic({NAME: "x"}, {})
    assert "x" == config.tls_settings("INSIDE").key_store.password
    without = {name: value for name, value in settings.items() if not name.startswith("password.")}
    with pytest.raises(ConfigError, match=r"needs `ssl\.keystore\.password`"):
        BrokerConfig.from_properties(without)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"password.encoder.cipher.algorithm": "AES/ECB/PKCS5Padding"}, "one of AES/CBC/PKCS5Padding"),
        ({"password.encoder.keyfactory.algorithm": "PBKDF2"}, "one of PBKDF2WithHmacSHA1"),
        ({"password.encoder.key.length": "64"}, "128 or 192 or 256 with"),
        ({"password.encoder.iterations": "1"}, "1024 to 10000000"),
    ],
)
def test_an_encoding_that_cannot_be_used_is_refused(settings: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        BrokerConfig.from_properties(settings)


def test_the_settings_of_the_encoding_are_used() -> None:
    config = BrokerConfig.from_properties(
        {
            "password.encoder.secret": "one",
            "password.encoder.cipher.algorithm": "AES/GCM/NoPadding",
            "password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA256",
            "password.encoder.key.length": "256",
            "password.encoder.iterations": "2000",
        }
    )
    text = StoredPasswords(config).encoded({NAME: "x"}, {}, {NAME})[NAME]
    for part in ("AES/GCM/NoPadding", "PBKDF2WithHmacSHA256", "keyLength:256", "iterations:2000"):
        assert part in text
