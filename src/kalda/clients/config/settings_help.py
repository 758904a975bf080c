"""Lists the settings of a client in its docstring, which `help` shows; ``**options`` says nothing there."""

from collections.abc import Callable
from typing import Final, TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.config.security_config import SecurityConfig

C = TypeVar("C", bound=type)

_LINE_CHARACTERS_MAX: Final = 90

_DEFAULT_CHARACTERS_MAX: Final = 40
"""Defaults that are names of Java's classes are longer."""


def lists_settings(config: type[CommonClientConfig]) -> Callable[[C], C]:
    """Return a decorator that adds the names and defaults of the settings to a class's docstring."""

    def add(client: C) -> C:
        if client.__doc__ is not None:  # python -OO
            client.__doc__ = f"{client.__doc__.rstrip()}\n\n{_paragraph(config)}\n    "
        return client

    return add


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
