"""Holds what a program sends with one call: a topic, a key, and one message or several."""

from kalda.common.public import public_in


@public_in("kalda.clients.legacy")
class ProducerData:
    """Messages for one partition of a topic: ``ProducerData(topic, data)`` or ``(topic, key, data)``.

    >>> ProducerData("test-topic", "test-key", ["first", "second"]).data
    ['first', 'second']

    A list holds several messages; anything else is one. The key chooses the partition; without one a random
    partition gets the messages. A key is also stored with each message, as `key.serializer.class` encodes it.
    """

    __slots__ = ("data", "key", "topic")

    def __init__(self, topic: str, *key_and_data: object) -> None:
        if len(key_and_data) not in (1, 2):
            raise TypeError(
                f"ProducerData takes (topic, data) or (topic, key, data), not {len(key_and_data) + 1}"
            )
        *key, data = key_and_data
        self.topic = topic
        self.key: object = key[0] if key else None
        self.data: list[object] = data if isinstance(data, list) else [data]
