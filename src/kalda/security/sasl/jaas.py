"""Reads the texts of ``sasl.jaas.config``: one login module with its options.

org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

_TOKEN: Final = re.compile(
    r'\s*(?:(?P<word>[A-Za-z0-9_.$\-]+)|"(?P<quoted>(?:\\.|[^"\\])*)"|\'(?P<single>[^\']*)\'|(?P<mark>[=;]))',
    re.DOTALL,
)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class JaasError(ValueError):
    """A text is not a login configuration; the message shows no value of an option."""


@dataclass(frozen=True, slots=True)
class JaasConfig:
    """One login module and its options."""

    module: str
    """The class that Java loads; only its last part means something here."""
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a setting.

        Raises:
            JaasError: it is malformed, or has several modules.
        """
        tokens = _tokens(text)
        if len(tokens) < 3 or tokens[0][0] == "mark" or tokens[1][1].lower() not in _FLAGS:
            raise JaasError('it takes: <login module> required name="value" …;')
        options: dict[str, str] = {}
        position = 2
        while position < len(tokens) and tokens[position] != ("mark", ";"):
            if position + 2 >= len(tokens) or tokens[position + 1] != ("mark", "="):
                raise JaasError(f'behind the option {tokens[position][1]}, ="value" is missing')
            options[tokens[position][1]] = tokens[position + 2][1]
            position += 3
        if position >= len(tokens):
            raise JaasError("the semicolon at its end is missing")
        if position + 1 < len(tokens):
            raise JaasError("it has more than one login module")
        return cls(tokens[0][1], options)

    @property
    def module_name(self) -> str:
        """The last part of the module's class name: ``ScramLoginModule``."""
        return self.module.rpartition(".")[2]


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise JaasError(f"character {position} begins neither a word nor a quoted text")
        kind = match.lastgroup
        assert kind is not None
        value = match[kind]
        tokens.append((kind, re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) if kind == "quoted" else value))
        position = match.end()
    return tokens
