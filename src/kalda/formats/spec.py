"""Says which format the values of a topic have: a name, a schema and options.

A `FormatSpec` is what a user declares, in a pipeline file or as options of a data source. It opens nothing;
`kalda.formats.open_decoder` does. A spec is picklable, and a file that it names is read on the driver,
because an executor may not see it.
"""

import base64
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

MESSAGE_CHARACTERS_MAX: Final = 500
"""Longer messages of failures are cut: they become headers of dead letters."""


class FormatError(ValueError):
    """A format, its schema or one of its options is wrong; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """The declared format of values: its name, its schema and its options.

    Args:
        name: One of `kalda.formats.FORMATS`, for example ``json`` or ``avro-sr``.
        schema: The schema's text in the format's own language, an Arrow schema, or None.
        schema_file: A file with that text, or a compiled descriptor set (.desc, .pb, .protoset); not both.
        options: Options of the format by name; all values are text.
    """

    name: str
    schema: str | pa.Schema | None = None
    schema_file: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def resolved(self) -> "FormatSpec":
        """Return this spec with the text of `schema_file` in `schema`.

        Raises:
            FormatError: Both are given, or the file cannot be read.
        """
        if self.schema_file is None:
            return self
        if self.schema is not None:
            raise FormatError("schema and schema_file are both given; give one")
        try:
            content = Path(self.schema_file).read_bytes()
        except OSError as error:
            raise FormatError(f"schema_file {self.schema_file!r} cannot be read: {error}") from error
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = f"base64:{base64.b64encode(content).decode()}"
        if self.schema_file.endswith((".desc", ".pb", ".protoset")):
            text = f"base64:{base64.b64encode(content).decode()}"
        return replace(self, schema=text, schema_file=None)

    def check_options(self, allowed: Iterable[str]) -> None:
        """Raise `FormatError` for an option that the format does not have."""
        names = sorted(allowed)
        for name in self.options:
            if name not in names:
                raise FormatError(
                    f"format {self.name} has no option {name!r}{close_match(name, names)}; "
                    f"allowed: {', '.join(names) or 'none'}"
                )

    def boolean(self, name: str, default: bool) -> bool:
        """Return an option that is ``true`` or ``false``."""
        text = self.options.get(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise FormatError(f"option {name}={text!r} of format {self.name} is neither true nor false")
        return text.strip().lower() == "true"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return an option that is one of `allowed`; the first one is the default."""
        text = self.options.get(name, allowed[0])
        if text not in allowed:
            raise FormatError(
                f"option {name}={text!r} of format {self.name} is not one of {', '.join(allowed)}"
            )
        return text

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """Return an option that is a whole number between the limits."""
        text = self.options.get(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if not minimum <= number <= maximum:
            raise FormatError(
                f"option {name}={text!r} of format {self.name} is not a whole number "
                f"from {minimum} to {maximum}"
            )
        return number


def spec_from_mapping(values: Mapping[str, object]) -> FormatSpec:
    """Return the spec of a mapping with ``format``, optional ``schema`` or ``schema_file``, and options.

    ``{"format": "csv", "schema": "id bigint", "header": "a,b"}`` is a spec with the option ``header``.

    Raises:
        FormatError: ``format`` is missing, or a value is not a scalar.
    """
    options: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            options[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            options[name] = str(value)
        else:
            raise FormatError(f"{name} is {type(value).__name__}; a text, a number or a boolean is expected")
    if "format" not in options:
        raise FormatError("format is missing; for example format: json")
    kept = {key: value for key, value in options.items() if key not in ("format", "schema", "schema_file")}
    return FormatSpec(options["format"], options.get("schema"), options.get("schema_file"), kept)


def close_match(name: str, allowed: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the allowed name that is most like `name`, or an empty text."""
    matches = difflib.get_close_matches(name, list(allowed), 1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def cut(message: str) -> str:
    """Return a message of at most `MESSAGE_CHARACTERS_MAX` characters."""
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    return message[: MESSAGE_CHARACTERS_MAX - 1] + "…"
