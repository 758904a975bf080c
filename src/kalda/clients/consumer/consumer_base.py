"""Implements the construction of `Consumer` and `AsyncConsumer`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, Unpack

from kalda.clients.argument_checks import check_listener
from kalda.clients.config.properties_source import PropertiesSource, properties_of
from kalda.clients.consumer.consumer_config import ConsumerOptions
from kalda.clients.consumer.consumer_setup import ConsumerSetup, given_deserializers, option_names
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.consumer.rebalance_listener import ConsumerInterceptor, ConsumerRebalanceListener
from kalda.clients.serde import K, V


class ConsumerBase(Generic[K, V]):
    """Base of `Consumer` and `AsyncConsumer`."""

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[K] | Callable[[bytes], K] | None = None,
        value_deserializer: Deserializer[V] | Callable[[bytes], V] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        listener: ConsumerRebalanceListener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Check the settings; a `Consumer` also begins to connect, an `AsyncConsumer` does so when it starts.

        Args:
            topics: Topics to subscribe to; without any, call `subscribe` or `assign`.
            key_deserializer: Makes keys of bytes, such as `kalda.serializers.string()`; without it, keys are
                bytes, or None for a record without one.
            value_deserializer: Makes values of bytes. A tombstone's value is None, without a call.
            interceptors: See records before the user, and committed offsets.
            listener: Is called when the group changes the assignment; in an `AsyncConsumer` its methods may
                be coroutines.
            options: Kafka's settings with underscores, see `ConsumerConfig`.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        check_listener(listener)
        deserializers = given_deserializers(key_deserializer, value_deserializer)
        self._set_up(ConsumerSetup.from_options({**options, **deserializers}, interceptors), topics, listener)

    @classmethod
    def _from_config(
        cls,
        config: PropertiesSource,
        topics: Sequence[str],
        options: Mapping[str, object],
        functions: Mapping[str, object],
        **objects: Any,
    ) -> Self:
        """Make a consumer of Kafka's dotted names, of settings that win, of deserializers and of objects."""
        merged: Any = {**option_names(properties_of(config)), **options, **functions}
        return cls(*topics, **objects, **merged)

    def _set_up(
        self, setup: ConsumerSetup, topics: Sequence[str], listener: ConsumerRebalanceListener | None
    ) -> None:
        raise NotImplementedError
