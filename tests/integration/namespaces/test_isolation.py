"""What one namespace must not see of another, and how namespaces live with brokers that come and go."""

from collections.abc import Iterator
from typing import Any

import pytest

from kalda import (
    Admin,
    AlterConfigOp,
    BrokerResponseError,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ElectionType,
    NewTopic,
    Producer,
    TopicPartition,
)
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults import FaultError
from kalda.protocol import codec, registry
from kalda.protocol.headers import read_response_header
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.protocol.messages.stop_replica import StopReplicaRequest
from kalda.protocol.schema import Message
from kalda.testing import Cluster, ClusterError, Namespace
from tests.raw_client import RawClient


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as running:
        yield running


def ask(client: RawClient, request: Message, version: int) -> Any:
    """Send a request and return its response."""
    key = request.SCHEMA.api_key
    assert key is not None
    flexible = registry.request_header_version(key, version) == 2
    answer = client.ask(key, version, b"\0" * flexible + codec.encode(request, version))
    assert answer is not None, "the broker closed the connection"
    _, position = read_response_header(answer, registry.response_header_version(key, version))
    return codec.decode(registry.spec(key).response_class, version, answer, position)


def create(space: Namespace, *names: str) -> None:
    with Admin(bootstrap_servers=space.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1) for name in names]).raise_for_errors()


def test_an_id_opens_no_topic_of_another_namespace(cluster: Cluster) -> None:
    """Ids are global; who knows one must not read or write the topic."""
    with cluster.namespace() as one, cluster.namespace() as other:
        create(one, "secret")
        create(other, "mine")
        with Producer(bootstrap_servers=one.bootstrap) as producer:
            producer.send("secret", value=b"secret").result(60)
        with Admin(bootstrap_servers=one.bootstrap) as admin:
            topic_id = admin.list_topics()["secret"].topic_id
            assert topic_id is not None
        with RawClient(other.bootstrap) as client:
            metadata = ask(
                client, MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)]), 12
            )
            assert [(ErrorCode.UNKNOWN_TOPIC_ID, topic_id, None)] == [
                (each.error_code, each.topic_id, each.name) for each in metadata.topics
            ]
            for _ in range(2):
                fetched = ask(
                    client,
                    FetchRequest(
                        max_wait_ms=0,
                        topics=[
                            FetchTopic(
                                topic_id=topic_id, partitions=[FetchPartition(partition_max_bytes=1000)]
                            )
                        ],
                    ),
                    13,
                )
                [topic] = fetched.responses
                assert topic_id == topic.topic_id
                assert [ErrorCode.UNKNOWN_TOPIC_ID] == [each.error_code for each in topic.partitions]
            produced = ask(
                client,
                ProduceRequest(
                    acks=1,
                    timeout_ms=1000,
                    topic_data=[
                        TopicProduceData(
                            topic_id=topic_id, partition_data=[PartitionProduceData(records=b"junk")]
                        )
                    ],
                ),
                13,
            )
            [written] = produced.responses
            assert topic_id == written.topic_id
            assert [ErrorCode.UNKNOWN_TOPIC_ID] == [each.error_code for each in written.partition_responses]
        with Admin(bootstrap_servers=other.bootstrap) as admin:
            deleted = admin.delete_topics([topic_id], outcomes=True)
            assert "does not host a topic with this id" in str(deleted.errors[topic_id])
        with Admin(bootstrap_servers=one.bootstrap) as admin:
            assert ["secret"] == list(admin.list_topics())


def test_internal_topics_are_hidden(cluster: Cluster) -> None:
    """They have the names of all groups; under their names a namespace may have topics of its own."""
    with cluster.namespace() as space:
        create(space, "t")
        with Consumer("t", bootstrap_servers=space.bootstrap, group_id="g") as consumer:
            consumer.poll(timeout_s=0.1)
            consumer.commit()
        with Admin(bootstrap_servers=space.bootstrap) as admin:
            assert ["t"] == list(admin.list_topics(include_internal=True))
            with pytest.raises(BrokerResponseError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                admin.describe_topics(["__consumer_offsets"])


def test_a_name_may_be_as_long_as_the_prefix_leaves(cluster: Cluster) -> None:
    """The error names the limit, without the prefix."""
    with cluster.namespace("space") as space, Admin(bootstrap_servers=space.bootstrap) as admin:
        longest = 249 - len("ns-space-")
        admin.create_topics([NewTopic("a" * longest)]).raise_for_errors()
        created = admin.create_topics([NewTopic("a" * (longest + 1)), NewTopic("..")], outcomes=True)
        for name in ("a" * (longest + 1), ".."):
            error = created.errors[name]
            assert ErrorCode.INVALID_TOPIC_EXCEPTION == error.code
            assert "ns-space-" not in str(error)
        too_long = str(created.errors["a" * (longest + 1)])
        assert f"it has {longest + 1} characters, and in the namespace space at most {longest}" in too_long


def test_errors_quote_plain_names(cluster: Cluster) -> None:
    """A program that shows them must not show the prefix."""
    with cluster.namespace() as space, Admin(bootstrap_servers=space.bootstrap) as admin:
        admin.create_topics([NewTopic("orders")]).raise_for_errors()
        created = admin.create_topics([NewTopic("orders")], outcomes=True)
        assert "Topic 'orders' already exists." in str(created.errors["orders"])


def test_every_listing_has_the_namespaces_own_names(cluster: Cluster) -> None:
    """Settings, log directories, elections, offsets show the plain names of one namespace."""
    with cluster.namespace() as one, cluster.namespace() as other:
        for space in (one, other):
            create(space, "orders", "bills")
        with Admin(bootstrap_servers=one.bootstrap) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
            admin.incremental_alter_configs({resource: [AlterConfigOp.set("retention.ms", 5000)]})
            assert "5000" == admin.describe_configs([resource])[resource]["retention.ms"].value
            assert {"orders", "bills"} == set(admin.describe_topics(["orders", "bills"]))
            dirs = admin.describe_log_dirs()[0]
            assert {TopicPartition("orders", 0), TopicPartition("bills", 0)} == {
                replica for each in dirs.values() for replica in each.replica_infos
            }
            listed = admin.list_config_resources([ConfigResourceType.TOPIC])
            assert {"orders", "bills"} == {each.name for each in listed}
            assert {} == admin.list_partition_reassignments()
            assert {} == dict(admin.elect_leaders(ElectionType.PREFERRED))
            admin.alter_consumer_group_offsets({"g": {TopicPartition("orders", 0): 0}})
            assert ["g"] == [each.group_id for each in admin.list_groups().all()]
            admin.delete_consumer_groups(["g"])
            assert [] == admin.list_groups().all()
        with Admin(bootstrap_servers=other.bootstrap) as admin:
            assert "5000" != admin.describe_configs([resource])[resource]["retention.ms"].value
            assert [] == admin.list_groups().all()


def test_a_request_of_brokers_closes_the_connection(cluster: Cluster) -> None:
    """It could stop the replicas of all namespaces."""
    with (
        cluster.namespace() as space,
        RawClient(space.bootstrap) as client,
    ):
        assert client.ask(ApiKey.STOP_REPLICA, 0, codec.encode(StopReplicaRequest(), 0)) is None


def test_wrong_names_and_names_in_use_are_refused(cluster: Cluster) -> None:
    """The message has the name, and what is allowed."""
    with pytest.raises(ValueError, match="namespace 'a-b': a name has 1 to 32 characters"):
        cluster.namespace("a-b")
    with cluster.namespace("a"), pytest.raises(ValueError, match="namespace 'a' is open already"):
        cluster.namespace("a")
    with cluster.namespace("a") as again:
        assert "a" == again.name
    again.close()
    cluster.stop(0)
    with pytest.raises(ClusterError, match="no broker serves"):
        cluster.namespace()


def test_a_namespace_outlives_its_brokers() -> None:
    """A broker that starts again has the ports that it had; one that was down gets its own."""
    with Cluster(brokers=3) as cluster:
        cluster.kill(2)
        with cluster.namespace() as space, cluster.namespace() as closed:
            before = space.bootstrap
            assert 2 == len(before.split(","))
            create(space, "t")
            cluster.pause(1)
            closed.close()
            cluster.resume(1)
            cluster.restart(0)
            assert before == space.bootstrap
            cluster.start(2)
            assert before == ",".join(space.bootstrap.split(",")[:2])
            assert 3 == len(space.bootstrap.split(","))
            for address in space.bootstrap.split(","):
                with Admin(bootstrap_servers=address) as admin:
                    assert {int(each.rpartition(":")[2]) for each in space.bootstrap.split(",")} == {
                        each.port for each in admin.describe_cluster().nodes
                    }
                    assert ["t"] == list(admin.list_topics())
            names = [set(cluster.server(broker_id).namespaces.names) for broker_id in range(3)]
            assert [{space.name}] * 3 == names


@pytest.mark.parametrize("settings", [{}, {"kalda.as.version": "2.8"}], ids=["newest", "older"])
def test_api_keys_of_clients_are_those_of_any_listener(settings: dict[str, str]) -> None:
    """A client finds the versions that it finds without a namespace, those of an older release as well."""
    with Cluster(brokers=1, settings=settings) as cluster, cluster.namespace() as space:
        with Admin(bootstrap_servers=space.bootstrap) as admin:
            found = admin.describe_api_versions()[0]
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert found == admin.describe_api_versions()[0]


def test_faults_of_a_namespace_are_its_own(cluster: Cluster) -> None:
    """A plan that names a topic means the namespace's, whether requests give its name or its id."""
    plan = "produce:INVALID_RECORD*1,topic=orders; fetch:UNKNOWN_SERVER_ERROR*1,topic=orders"
    with cluster.namespace(faults=plan) as one, cluster.namespace() as other:
        for space in (one, other):
            create(space, "orders", "bills")
            with Producer(bootstrap_servers=space.bootstrap) as producer:
                producer.send("bills", value=b"x").result(60)
                if space is one:
                    with pytest.raises(BrokerResponseError, match="INVALID_RECORD"):
                        producer.send("orders", value=b"x").result(60)
                producer.send("orders", value=b"x").result(60)
    with pytest.raises(FaultError, match=r"broker:kill@0: a namespace has faults of requests only"):
        cluster.namespace(faults="broker:kill@0")
    assert [] == list(cluster.server(0).namespaces.names)


def test_faults_outlive_a_restart() -> None:
    """They count on: what applied twice before does not apply again."""
    with Cluster(brokers=1) as cluster, cluster.namespace(faults="metadata:INVALID_REQUEST*1") as space:
        cluster.restart(0)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        with RawClient(space.bootstrap) as client:
            codes = [ask(client, wanted, 9).topics[0].error_code for _ in range(2)]
        assert [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == codes
