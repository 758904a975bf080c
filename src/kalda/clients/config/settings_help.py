"""Shows how settings are given: their list in the docstring of a client, and an error for other ways.

``**options`` says nothing in `help`, and Python's own error for ``Producer("host:9092")`` counts arguments.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.config.security_config import SecurityConfig

C = TypeVar("C", bound=type)

_LINE_CHARACTERS_MAX: Final = 90

_DEFAULT_CHARACTERS_MAX: Final = 40
"""Defaults that are names of Java's classes are longer."""


def lists_settings(config: type[CommonClientConfig]) -> Callable[[C], C]:
    """Return a decorator that adds the names and defaults of the settings to a class's docstring.

    The class then refuses addresses and mappings as positional arguments with the form that works.
    """

    def add(client: C) -> C:
        if client.__doc__ is not None:  # python -OO
            client.__doc__ = f"{client.__doc__.rstrip()}\n\n{_paragraph(config)}\n    "
        _refuse_positions(client)
        return client

    return add


def _refuse_positions(client: Any) -> None:
    begin = client.__init__
    parameters = inspect.signature(begin).parameters.values()
    takes_names = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)

    @wraps(begin)
    def checked(self: object, *args: object, **options: object) -> None:
        name = client.__name__
        if args and isinstance(args[0], Mapping):
            raise TypeError(f"{name} takes no dict: {name}.from_config({{...}}) takes one with Kafka's names")
        if args and not takes_names:
            raise TypeError(f"{name} takes its settings by name: {name}(bootstrap_servers={args[0]!r})")
        begin(self, *args, **options)

    client.__init__ = checked


def _paragraph(config: type[CommonClientConfig]) -> str:
    lines = ["    Settings, with their defaults; docs/reference/client-configs.md describes them:", "       "]
    security = SecurityConfig.definitions()
    definitions = config.definitions()
    for name in sorted(definitions, key=security.__contains__):
        default = repr(definitions[name].default)
        word = f" {name}={default if len(default) < _DEFAULT_CHARACTERS_MAX else '…'},"
        if len(lines[-1]) + len(word) > _LINE_CHARACTERS_MAX:
            lines.append("       ")
        lines[-1] += word
    return "\n".join(lines).rstrip(",")
