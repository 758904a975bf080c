"""Reads the settings of a properties file that name Java classes, and gives their counterparts here.

`key.serializer`, `value.serializer`, `partitioner.class`, `interceptor.classes` and `metric.reporters` are
the settings that a ``client.properties`` of a Java program may have beside those of `ProducerConfig`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kalda.clients.errors import ClientConfigError
from kalda.clients.producer.partitioner import RoundRobinPartitioner
from kalda.clients.producer.producer_core import ProducerObjects
from kalda.clients.producer.serializers import SerializerFunction, serializer_of_java_class

_ROUND_ROBIN: Final = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_WITHOUT_EFFECT: Final = ("metric.reporters", "auto.include.jmx.reporter")
"""Settings about Java's JMX, which a Python process does not have."""


def split_properties(
    properties: Mapping[str, object], objects: ProducerObjects
) -> tuple[dict[str, object], ProducerObjects]:
    """Return the settings for `ProducerConfig`, and `objects` with what the other settings name.

    An object that is given as an argument wins over a class that a setting names.

    Raises:
        ClientConfigError: a class has no counterpart.
    """
    settings = {name: value for name, value in properties.items() if name not in _WITHOUT_EFFECT}
    for what in ("key", "value"):
        setting = f"{what}.serializer"
        if setting in settings:
            value = settings.pop(setting)
            if getattr(objects, f"{what}_serializer") is None:
                objects = _with_serializer(objects, what, _serializer(setting, value))
    if "partitioner.class" in settings:
        value = settings.pop("partitioner.class")
        if objects.partitioner is None and value not in (None, ""):
            objects = replace(objects, partitioner=_partitioner(value))
    if settings.get("interceptor.classes") in ("", (), []):
        del settings["interceptor.classes"]
    if "interceptor.classes" in settings:
        raise ClientConfigError(
            f"`interceptor.classes`={settings['interceptor.classes']} names Java classes; give "
            "interceptors= a list of Python objects"
        )
    return settings, objects


def _serializer(setting: str, value: object) -> SerializerFunction | None:
    if value is None or callable(value):
        return value
    return serializer_of_java_class(setting, str(value))


def _with_serializer(
    objects: ProducerObjects, what: str, serializer: SerializerFunction | None
) -> ProducerObjects:
    if what == "key":
        return replace(objects, key_serializer=serializer)
    return replace(objects, value_serializer=serializer)


def _partitioner(value: object) -> RoundRobinPartitioner:
    if value in (_ROUND_ROBIN, "RoundRobinPartitioner"):
        return RoundRobinPartitioner()
    raise ClientConfigError(
        f"`partitioner.class`={value} is a Java class without a counterpart here; give partitioner= a "
        f"function, or name {_ROUND_ROBIN}"
    )
