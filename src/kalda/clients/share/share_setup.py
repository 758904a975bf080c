"""Implements the construction of `ShareConsumer` and `AsyncShareConsumer`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, Unpack

from kalda.clients.argument_checks import check_callback
from kalda.clients.config.properties_source import PropertiesSource, properties_of
from kalda.clients.consumer.consumer_setup import given_deserializers
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.errors import ClientError
from kalda.clients.serde import K, V
from kalda.clients.share.share_config import ShareConsumerConfig, ShareConsumerOptions
from kalda.common.types import TopicPartition

OnAcknowledged = Callable[[TopicPartition, Sequence[int], ClientError | None], object]
"""Called with a partition, the offsets of acknowledged records, and None or the error of all of them."""


@dataclass(frozen=True, slots=True)
class ShareSetup:
    """The parts of a share consumer."""

    config: ShareConsumerConfig
    deserializers: Deserializers
    on_acknowledged: OnAcknowledged | None

    @classmethod
    def from_options(cls, options: Mapping[str, object], on_acknowledged: OnAcknowledged | None) -> Self:
        """Read keyword arguments.

        Raises:
            ClientConfigError: see `CommonClientConfig.from_options`; or a deserializer is none.
            ValueError: `on_acknowledged` cannot be called.
        """
        check_callback("on_acknowledged", on_acknowledged)
        texts = dict(options)
        objects: dict[str, Any] = {
            name: texts.pop(name)
            for name in ("key_deserializer", "value_deserializer")
            if not isinstance(texts.get(name, ""), str | None)
        }
        config = ShareConsumerConfig.from_options(texts)
        deserializers = Deserializers(
            objects.get("key_deserializer", config.key_deserializer),
            objects.get("value_deserializer", config.value_deserializer),
        )
        return cls(config, deserializers, on_acknowledged)


class ShareConsumerBase(Generic[K, V]):
    """Base of `ShareConsumer` and `AsyncShareConsumer`."""

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[K] | Callable[[bytes], K] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V] | None = None,
        on_acknowledged: OnAcknowledged | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Check the settings; a `ShareConsumer` also begins to connect.

        Args:
            topics: Topics to subscribe to; without any, call `subscribe`.
            key_deserializer: Makes keys of bytes, such as `kalda.serializers.string()`; without it, keys are
                bytes, or None for a record without one.
            value_deserializer: Makes values of bytes. A tombstone's value is None, without a call.
            on_acknowledged: Called with the outcome of each acknowledgement that a broker answered: the
                partition, the offsets, and None or the error of all of them. A `ShareConsumer` calls it in
                `poll`, `commit` and `close`.
            options: Kafka's settings with underscores, see `ShareConsumerConfig`.

        Raises:
            ClientConfigError: a setting is unknown or not allowed, or `group_id` is missing.
        """
        deserializers = given_deserializers(key_deserializer, value_deserializer)
        self._set_up(ShareSetup.from_options({**options, **deserializers}, on_acknowledged), topics)

    @classmethod
    def _from_config(
        cls,
        config: PropertiesSource,
        topics: Sequence[str],
        options: Mapping[str, object],
        functions: Mapping[str, object],
        on_acknowledged: OnAcknowledged | None,
    ) -> Self:
        """Make a consumer of Kafka's dotted names, of settings that win, and of deserializers."""
        named = ShareConsumerConfig.options_of(properties_of(config))
        merged: Any = {**named, **options, **functions}
        return cls(*topics, on_acknowledged=on_acknowledged, **merged)

    def _set_up(self, setup: ShareSetup, topics: Sequence[str]) -> None:
        raise NotImplementedError
