"""Implements what `Producer` and `AsyncProducer` have in common: their construction and metrics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, Unpack

from kalda.clients.config.properties_source import PropertiesSource, properties_of
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.producer.java_classes import split_properties
from kalda.clients.producer.partitioner import PartitionChoice, Partitioner
from kalda.clients.producer.producer_config import ProducerConfig, ProducerOptions
from kalda.clients.producer.producer_core import ProducerCore, ProducerObjects
from kalda.clients.producer.producer_interceptor import ProducerInterceptor
from kalda.clients.producer.serializers import Serializer
from kalda.clients.reprs import client_repr
from kalda.clients.serde import K, V


class ProducerBase(Generic[K, V]):
    """Base of `Producer` and `AsyncProducer`."""

    _core: ProducerCore
    _is_closed: bool

    def __init__(
        self,
        *,
        key_serializer: Serializer[K] | Callable[[K], bytes | None] | None = None,
        value_serializer: Serializer[V] | Callable[[V], bytes | None] | None = None,
        partitioner: Partitioner | PartitionChoice | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Check the settings; a `Producer` also begins to connect, an `AsyncProducer` does so when it starts.

        Args:
            key_serializer: Makes bytes of keys, such as `kalda.serializers.string()`; without it, keys are
                bytes or None.
            value_serializer: Makes bytes of values, as `key_serializer` does of keys.
            partitioner: Chooses the partition of a record that names none.
            interceptors: See records before they are serialized, and their results.
            options: Kafka's settings with underscores, see `ProducerConfig`.

        Raises:
            ClientConfigError: an option is unknown or its value is not allowed.
        """
        objects = ProducerObjects(
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._set_up(ProducerConfig.from_options(options), objects)

    @classmethod
    def _from_config(
        cls, properties: PropertiesSource, options: Mapping[str, object], **objects: Any
    ) -> Self:
        """Make a producer of Kafka's dotted names, of settings that win, and of `ProducerObjects`."""
        settings, split = split_properties(properties_of(properties), ProducerObjects(**objects))
        producer = cls.__new__(cls)
        producer._set_up(
            ProducerConfig.from_options({**ProducerConfig.options_of(settings), **options}), split
        )
        return producer

    def _set_up(self, config: ProducerConfig, objects: ProducerObjects) -> None:
        raise NotImplementedError

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics, by Kafka's groups and names.

        For example ``producer.metrics().value("producer-metrics", "record-send-total")``.
        """
        return self._core.metrics.values()

    def __repr__(self) -> str:
        core = vars(self).get("_core")
        state = "closed" if core is None or self._is_closed else "open"
        return client_repr(self, None if core is None else core.client.config, state)
