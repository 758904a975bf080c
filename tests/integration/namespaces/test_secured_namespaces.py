"""Users, passwords, rights, quotas and tokens are those of one namespace."""

import base64
import contextlib
from collections.abc import Iterator, Mapping

import confluent_kafka
import pytest

from kalda import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    Admin,
    BrokerResponseError,
    ClientError,
    KafkaPrincipal,
    NewTopic,
    PatternType,
    PermissionType,
    Producer,
    QuotaAlteration,
    ResourcePattern,
    ResourceType,
    ScramCredentialUpsertion,
    ScramMechanism,
)
from kalda.testing import Cluster, Namespace, Security

EVERY_USER = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "*"),
    AccessControlEntry("User:*", "*", AclOperation.ALL, PermissionType.ALLOW),
)


@contextlib.contextmanager
def two(
    security: Security, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Namespace, Namespace]]:
    """Run a secured cluster with two namespaces, in each of which there is the topic t."""
    with (
        Cluster(brokers=1, security=security, settings=settings) as cluster,
        cluster.namespace() as one,
        cluster.namespace() as other,
    ):
        for space in (one, other):
            with Admin.from_config(space.client_config()) as admin:
                admin.create_topics([NewTopic("t", 1, 1)]).raise_for_errors()
        yield one, other


def write(space: Namespace, user: str) -> None:
    with Producer.from_config(space.client_config(user)) as producer:
        producer.send("t", value=b"x").result(60)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SSL", "PLAIN"),
    ],
)
def test_a_right_in_one_namespace_is_none_in_another(protocol: str, mechanism: str) -> None:
    """``User:*`` and ``*`` are all users and all topics of one namespace, however they log in."""
    with two(Security(users=["alice"], protocol=protocol, mechanism=mechanism)) as (one, other):
        with Admin.from_config(one.client_config()) as admin:
            admin.create_acls([EVERY_USER]).raise_for_errors()
            assert [EVERY_USER] == admin.describe_acls()
        write(one, "alice")
        confluent = confluent_kafka.Producer(one.client_config("alice", "confluent-kafka"))
        confluent.produce("t", b"x")
        assert 0 == confluent.flush(20)
        with pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
            write(other, "alice")
        with Admin.from_config(other.client_config()) as admin:
            assert [] == admin.describe_acls()
            assert [] == admin.delete_acls([AclFilter()])[AclFilter()]
        with Admin.from_config(one.client_config()) as admin:
            assert [EVERY_USER] == admin.delete_acls([AclFilter()])[AclFilter()]
            assert [] == admin.describe_acls()
        with pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
            write(one, "alice")


def test_acls_have_the_patterns_that_were_given() -> None:
    """Prefixes, names, the wildcard and the cluster, for users and for all of them."""
    patterns = [
        ResourcePattern(ResourceType.TOPIC, "t"),
        ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED),
        ResourcePattern(ResourceType.GROUP, "*"),
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, "writer"),
    ]
    bindings = {
        AclBinding(pattern, AccessControlEntry(user, "*", AclOperation.DESCRIBE, PermissionType.ALLOW))
        for pattern in patterns
        for user in ("User:alice", "User:*")
    }
    with (
        two(Security(protocol="SASL_PLAINTEXT")) as (one, other),
        Admin.from_config(one.client_config()) as admin,
        Admin.from_config(other.client_config()) as others,
    ):
        admin.create_acls(bindings).raise_for_errors()
        assert bindings == set(admin.describe_acls())
        assert [] == others.describe_acls()
        literal = AclFilter(pattern_type=PatternType.LITERAL)
        wanted = {each for each in bindings if each.pattern.pattern_type is PatternType.LITERAL}
        assert wanted == set(admin.describe_acls(literal))
        matching = AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH)
        wanted = {each for each in bindings if each.pattern.name == "or"}
        assert wanted == set(admin.describe_acls(matching)) == set(admin.delete_acls([matching])[matching])
        assert bindings - wanted == set(admin.describe_acls())


def test_users_of_the_same_name_have_their_own_passwords() -> None:
    """SCRAM credentials are looked up in the namespace, and proved with the plain name."""
    with two(Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", acls=False)) as (one, other):
        for space, password in ((one, "first"), (other, "second")):
            with Admin.from_config(space.client_config()) as admin:
                admin.alter_user_scram_credentials(
                    [ScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_256, password)]
                ).raise_for_errors()
                assert ["carol"] == list(admin.describe_user_scram_credentials())

        def config(space: Namespace, password: str) -> dict[str, object]:
            return {
                "bootstrap_servers": space.bootstrap,
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "carol",
                "sasl_password": password,
            }

        for space, password, is_right in (
            (one, "first", True),
            (other, "second", True),
            (one, "second", False),
            (other, "first", False),
        ):
            with (
                contextlib.nullcontext() if is_right else pytest.raises(ClientError, match="uthentication"),
                Admin(**config(space, password)) as admin,  # type: ignore[arg-type]  # a plain mapping
            ):
                assert ["t"] == list(admin.list_topics())


def test_quotas_are_of_the_namespaces_users_and_client_ids() -> None:
    """A default quota of one namespace does not slow the clients of another one down."""
    with (
        two(Security(protocol="SASL_PLAINTEXT", acls=False)) as (one, other),
        Admin.from_config(one.client_config()) as admin,
        Admin.from_config(other.client_config()) as others,
    ):
        entities = [(("user", None),), (("client-id", "app"), ("user", "alice")), (("client-id", None),)]
        admin.alter_client_quotas(
            [QuotaAlteration(entity, {"producer_byte_rate": 2000.0}) for entity in entities]
        ).raise_for_errors()
        assert set(entities) == {tuple(sorted(entity)) for entity in admin.describe_client_quotas()}
        assert {} == others.describe_client_quotas()
        waits = {}
        for space in (one, other):
            throttled: list[float] = []
            producer = confluent_kafka.Producer(
                {
                    **space.client_config("admin", "confluent-kafka"),
                    "throttle_cb": lambda event, throttled=throttled: throttled.append(event.throttle_time),
                }
            )
            # A little more than eleven seconds may bring at once.
            producer.produce("t", bytes(23_000))
            assert 0 == producer.flush(30)
            producer.poll(0)
            waits[space.name] = throttled
        assert waits[one.name], "the default quota of users slows the client down"
        assert not waits[other.name]


def test_a_token_logs_in_to_its_namespace_alone() -> None:
    """A token is of a user, and the user of another namespace with the same name is another one."""
    settings = {"delegation.token.secret.key": "secret"}
    security = Security(protocol="SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", acls=False)
    with two(security, settings) as (one, other):
        with Admin.from_config(one.client_config()) as admin:
            token = admin.create_delegation_token([KafkaPrincipal("User", "bob")])
            assert "User:admin" == str(token.owner)
            assert ["User:bob"] == [str(each) for each in token.renewers]
            assert [token.token_id] == [each.token_id for each in admin.describe_delegation_tokens()]
        with Admin.from_config(other.client_config()) as admin:
            assert [] == admin.describe_delegation_tokens()
        for space, expected in ((one, True), (other, False)):
            config = {
                "bootstrap.servers": space.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token.token_id}" password="{base64.b64encode(token.hmac).decode()}" '
                'tokenauth="true";',
            }
            with (
                contextlib.nullcontext() if expected else pytest.raises(ClientError, match="uthentication"),
                Admin.from_config(config) as admin,
            ):
                assert ["t"] == list(admin.list_topics())
