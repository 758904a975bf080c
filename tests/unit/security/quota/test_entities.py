"""Names of entities, values of quotas, filters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.quota.entity import QuotaEntity
from kalda.security.quota.filter import (
    ANY,
    EXACT,
    OF_DEFAULT,
    FilterPart,
    QuotaFilter,
    UnknownEntityTypeError,
)
from kalda.security.quota.settings import quota_text, quota_values

names = st.none() | st.text(min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))


@given(user=names, client_id=names, kinds=st.sampled_from([("user",), ("client-id",), ("user", "client-id")]))
def test_any_name_survives_its_way_through_zookeeper(
    user: str | None, client_id: str | None, kinds: tuple[str, ...]
) -> None:
    given_names = {"user": user, "client-id": client_id}
    wanted = {kind: given_names[kind] for kind in kinds}
    entity = QuotaEntity.of(wanted)
    assert entity == QuotaEntity.at(*entity.location)
    assert wanted == entity.names
    assert "//" not in entity.location[1]


@pytest.mark.parametrize(
    ("wanted", "location"),
    [
        ({"user": "alice"}, ("users", "alice")),
        ({"user": None}, ("users", "<default>")),
        ({"user": "a b", "client-id": None}, ("users", "a%20b/clients/<default>")),
        ({"client-id": "app"}, ("clients", "app")),
        ({"ip": "192.0.2.7"}, ("ips", "192.0.2.7")),
        ({"ip": "::ffff:192.0.2.7"}, ("ips", "::ffff:192.0.2.7")),
        ({"ip": None}, ("ips", "<default>")),
    ],
)
def test_paths_are_those_of_kafka(wanted: dict[str, str | None], location: tuple[str, str]) -> None:
    assert location == QuotaEntity.of(wanted).location


def test_an_address_is_read_where_the_first_releases_stored_it() -> None:
    """Apache Kafka does not start beside it, so a change moves it."""
    entity = QuotaEntity.of({"ip": "::1"})
    assert ("ips", "%3A%3A1") == entity.former_location
    assert entity == QuotaEntity.at("ips", "%3A%3A1") == QuotaEntity.at("ips", "::1")
    assert QuotaEntity.of({"ip": "192.0.2.7"}).former_location is None
    assert QuotaEntity.of({"user": "a:b"}).former_location is None


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"group": "g"}, "Unhandled client quota entity type: group"),
        ({"user": ""}, 'user "" cannot have a quota'),
        ({"client-id": ".."}, 'client-id ".." cannot have a quota'),
        ({"client-id": "a" * 256}, "a client-id of 256 characters cannot have a quota; at most 255"),
        ({"user": "alice", "ip": "192.0.2.7"}, "Invalid quota entity combination: user, ip"),
    ],
)
def test_entities_that_cannot_be_are_refused(wanted: dict[str, str | None], reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
        QuotaEntity.of(wanted)


@pytest.mark.parametrize(
    ("name", "value", "of_ip", "text"),
    [
        ("producer_byte_rate", 1048576.0, False, "1048576"),
        ("producer_byte_rate", 10.0000001, False, "10"),
        ("request_percentage", 0.5, False, "0.5"),
        ("controller_mutation_rate", 50.0, False, "50.0"),
        ("connection_creation_rate", 0.0, True, "0"),
    ],
)
def test_values_are_written_as_kafka_writes_them(name: str, value: float, of_ip: bool, text: str) -> None:
    assert text == quota_text(name, value, of_ip=of_ip)


@pytest.mark.parametrize(
    ("name", "value", "of_ip", "reason"),
    [
        ("producer_byte_rate", 1.5, False, "must be a whole number, found 1.5"),
        ("producer_byte_rate", 0.0, False, "must be 1 to 9223372036854775807, found 0"),
        ("consumer_byte_rate", -3.0, False, "found -3"),
        ("request_percentage", 0.0, False, "must be above 0, found 0"),
        ("request_percentage", math.nan, False, "must be a number, found nan"),
        ("controller_mutation_rate", math.inf, False, "must be a number, found inf"),
        ("connection_creation_rate", 3e9, True, "must be 0 to 2147483647, found 3000000000"),
        ("connection_creation_rate", 3.0, False, "Invalid configuration key connection_creation_rate"),
        ("producer_byte_rate", 3.0, True, "allowed are connection_creation_rate"),
        ("SCRAM-SHA-256", 3.0, False, "Invalid configuration key SCRAM-SHA-256"),
    ],
)
def test_values_that_cannot_be_are_refused(name: str, value: float, of_ip: bool, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        quota_text(name, value, of_ip=of_ip)


def test_only_numbers_among_the_settings_are_quotas() -> None:
    settings = {
        "producer_byte_rate": "1024",
        "consumer_byte_rate": "fast",
        "request_percentage": "nan",
        "controller_mutation_rate": "-1",
        "SCRAM-SHA-256": "salt=…",
    }
    assert {"producer_byte_rate": 1024.0} == quota_values(settings)


ENTITIES = {
    "user": QuotaEntity.of({"user": "alice"}),
    "default user": QuotaEntity.of({"user": None}),
    "user client": QuotaEntity.of({"user": "alice", "client-id": "app"}),
    "user default client": QuotaEntity.of({"user": "alice", "client-id": None}),
    "client": QuotaEntity.of({"client-id": "app"}),
    "ip": QuotaEntity.of({"ip": "192.0.2.7"}),
}


@pytest.mark.parametrize(
    ("parts", "is_strict", "accepted"),
    [
        ([], False, set(ENTITIES)),
        ([], True, set()),
        ([FilterPart("user", EXACT, "alice")], False, {"user", "user client", "user default client"}),
        ([FilterPart("user", EXACT, "alice")], True, {"user"}),
        ([FilterPart("user", OF_DEFAULT)], False, {"default user"}),
        ([FilterPart("user", ANY)], True, {"user", "default user"}),
        ([FilterPart("user", ANY), FilterPart("client-id", OF_DEFAULT)], True, {"user default client"}),
        ([FilterPart("client-id", ANY)], False, {"user client", "user default client", "client"}),
        ([FilterPart("ip", ANY)], False, {"ip"}),
        ([FilterPart("ip", EXACT, "192.0.2.8")], False, set()),
    ],
)
def test_filters(parts: list[FilterPart], is_strict: bool, accepted: set[str]) -> None:
    wanted = QuotaFilter(parts, is_strict=is_strict)
    assert accepted == {name for name, entity in ENTITIES.items() if wanted.accepts(entity)}


@pytest.mark.parametrize(
    ("parts", "kind", "reason"),
    [
        ([FilterPart("", ANY)], ValueError, "Unexpected empty filter component entity type"),
        ([FilterPart("group", ANY)], UnknownEntityTypeError, "Custom entity type 'group' not supported"),
        ([FilterPart("user", ANY), FilterPart("user", ANY)], ValueError, "Duplicate user"),
        ([FilterPart("user", 3)], ValueError, "Unexpected match type 3"),
        ([FilterPart("user", EXACT)], ValueError, "needs a name with match type 0"),
        ([FilterPart("user", ANY, "alice")], ValueError, "needs a name with match type 0"),
        ([FilterPart("user", ANY), FilterPart("ip", ANY)], ValueError, "Invalid entity filter component"),
    ],
)
def test_filters_that_cannot_be_are_refused(
    parts: list[FilterPart], kind: type[ValueError], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        QuotaFilter(parts, is_strict=False)
