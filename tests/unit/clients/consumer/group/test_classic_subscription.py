import pytest

from kalda.clients.consumer.assignors.partition_assignor import Assignment, Subscription
from kalda.clients.consumer.group.classic_subscription import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kalda.common.types import TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kalda.protocol.protocol_errors import ProtocolError

OWNED = (TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1))
SUBSCRIPTION = Subscription(("t", "u"), b"data", OWNED, 4, "r1", "i1")
ASSIGNMENT = Assignment(OWNED, b"data")


def test_a_subscription_is_read_as_it_was_written() -> None:
    """The instance id comes from the response of JoinGroup, not from these bytes."""
    assert SUBSCRIPTION == read_subscription(write_subscription(SUBSCRIPTION), "i1")


def test_an_assignment_is_read_as_it_was_written() -> None:
    """With the user data that assignors of applications may add."""
    assert ASSIGNMENT == read_assignment(write_assignment(ASSIGNMENT))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(("t",), b"data")),
        (1, Subscription(("t",), b"data", OWNED[:2])),
        (2, Subscription(("t",), b"data", OWNED[:2], 4)),
    ],
)
def test_subscriptions_of_older_members_are_read(version: int, expected: Subscription) -> None:
    """Groups may hold members of any age: v1 has owned partitions, v2 the generation, v3 the rack."""
    full = Subscription(("t",), b"data", OWNED[:2], 4, "r1")
    message = codec.decode(ConsumerProtocolSubscription, 3, write_subscription(full)[2:])
    data = version.to_bytes(2, "big") + codec.encode(message, version)
    assert expected == read_subscription(data)


def test_of_newer_versions_the_known_fields_are_read() -> None:
    """Newer versions only append fields."""
    data = b"\0\x07" + write_subscription(SUBSCRIPTION)[2:] + b"something new"
    assert SUBSCRIPTION == read_subscription(data, "i1")


@pytest.mark.parametrize("read", [read_subscription, read_assignment])
def test_truncated_bytes_are_refused(read: object) -> None:
    """They come from other members, whatever these are."""
    assert callable(read)
    data = write_subscription(SUBSCRIPTION)
    for length in range(12):
        with pytest.raises(ProtocolError):
            read(data[:length])
    with pytest.raises(ProtocolError, match="no version -1"):
        read(b"\xff\xff" + data[2:])
