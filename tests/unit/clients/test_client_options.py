"""The keyword arguments of clients, which type checkers see, are the settings, in name and type.

A checker knows keyword arguments only from a `TypedDict` that stands in the source, and the attributes of a
settings object only from its class. So each name stands twice; nothing else keeps the two equal.
"""

from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

import pytest

from kalda.clients.admin.admin_config import AdminConfig, AdminOptions
from kalda.clients.config.client_options import CommonClientOptions
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig, ConsumerOptions
from kalda.clients.producer.producer_config import ProducerConfig, ProducerOptions
from kalda.common.config_def import ConfigType

PAIRS = [
    (CommonClientConfig, CommonClientOptions),
    (AdminConfig, AdminOptions),
    (ConsumerConfig, ConsumerOptions),
    (ProducerConfig, ProducerOptions),
]
WITH_TYPE_PARAMETERS = {"key_deserializer", "value_deserializer"}
"""Arguments of `Consumer` itself, where they decide what its records hold."""

TAKES = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: str,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def types_in(hint: Any) -> list[Any]:
    """Return the classes and literals of a type."""
    if get_origin(hint) in (Union, UnionType):
        return [each for part in get_args(hint) for each in types_in(part)]
    return [hint]


@pytest.mark.parametrize(("config", "options"), PAIRS, ids=lambda each: each.__name__)
def test_the_names_are_those_of_the_settings(
    config: type[CommonClientConfig],
    options: type[TypedDict],  # type: ignore[valid-type]
) -> None:
    assert set(config.definitions()) - WITH_TYPE_PARAMETERS == set(get_type_hints(options))


@pytest.mark.parametrize(("config", "options"), PAIRS, ids=lambda each: each.__name__)
def test_the_types_are_those_of_the_settings(
    config: type[CommonClientConfig],
    options: type[TypedDict],  # type: ignore[valid-type]
) -> None:
    wrong = []
    definitions = config.definitions()
    for name, hint in get_type_hints(options).items():
        key, types = definitions[name], types_in(hint)
        literals = [value for each in types if get_origin(each) is Literal for value in get_args(each)]
        for value in literals:
            key.parse(str(value))
        allowed = key.validator.allowed if literals and key.validator is not None else ""
        missing = set(allowed.removeprefix("one of ").split(", ")) - {str(value) for value in literals}
        is_taken = TAKES[key.type] in types or any(isinstance(each, TAKES[key.type]) for each in literals)
        is_list = key.type is not ConfigType.LIST or any("Sequence" in str(each) for each in types)
        is_nullable = key.default is not None or NoneType in types
        if not (is_taken and is_list and is_nullable) or (allowed.startswith("one of ") and missing):
            wrong.append(f"{name}: {hint}, {key.type.name}, default {key.default!r}")
    assert [] == wrong
