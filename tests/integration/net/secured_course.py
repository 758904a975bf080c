"""What each client of a `SecuredBroker` does, and what must hold behind it."""

from kalda import Admin
from kalda.clients.admin.acls import AclFilter, ResourceType
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.admin.quotas import QuotaFilter, quota_entity
from kalda.common.types import TopicPartition
from tests.integration.net.secured_clients import (
    ACLS,
    BYTE_RATE,
    QUOTAS,
    RETENTION_MS,
    USERS,
    SecuredClient,
)

VALUES = [b"v%03d" % number for number in range(50)]


def run_course(client: SecuredClient, topic: str) -> None:
    """Administer, write, read as a group; the topic's name must begin with the name of the way's user."""
    client.administer(topic)
    client.broker.check_audit(client.way, topic)
    with client.broker.admin() as admin:
        check_administered(admin, topic, client.administers)
        client.write(topic, VALUES)
        assert VALUES == client.read(topic, len(VALUES))
        client.describe_group(topic)
        offsets = admin.list_consumer_group_offsets([topic])[topic]
        committed = offsets[TopicPartition(topic, 0)]
        assert committed is not None
        assert len(VALUES) == committed.offset


def check_administered(admin: Admin, topic: str, by_client: frozenset[str]) -> None:
    """Check the changes that a client made, as another client sees them."""
    assert 2 == len(admin.describe_topics([topic])[topic].partitions)
    resource = ConfigResource.topic(topic)
    assert RETENTION_MS == admin.describe_configs([resource])[resource]["retention.ms"].value
    if ACLS in by_client:
        (found,) = admin.describe_acls(AclFilter(ResourceType.TOPIC, topic))
        assert f"User:{topic}" == found.entry.principal
    if USERS in by_client:
        assert [4096] == [each.iterations for each in admin.describe_user_scram_credentials([topic])[topic]]
    if QUOTAS in by_client:
        described = admin.describe_client_quotas([QuotaFilter("user", topic)], strict=True)
        assert {quota_entity({"user": topic}): {"producer_byte_rate": BYTE_RATE}} == described
