"""What consumers subscribe to, read from the bytes that they exchange through their group's leader.

The bytes are the clients' own affair: whatever cannot be read is unknown, never an error.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from kalda.protocol.codec import decode
from kalda.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kalda.protocol.protocol_errors import ProtocolError

__all__ = ["subscribed_topics"]

_VERSION: Final = Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            if len(subscription) < _VERSION.size or _VERSION.unpack_from(subscription)[0] < 0:
                return None
            # Version 0 is what every version begins with, the unknown ones of the future included.
            found = decode(ConsumerProtocolSubscription, 0, subscription, _VERSION.size, allow_excess=True)
        except ProtocolError:
            return None
        topics.update(found.topics)
    return frozenset(topics)
