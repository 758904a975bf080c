"""Option types and texts that the commands for streams and consumers share."""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import click

from kalda.command.errors import ToolUsageError
from kalda.command.option_types import not_allowed
from kalda.command.output import Json

NS: Final = 1_000_000_000

_UNITS: Final = {"ms": 1_000_000, "s": NS, "m": 60 * NS, "h": 3_600 * NS, "d": 86_400 * NS}
_DURATION: Final = re.compile(r"(\d{1,9})(ms|[smhd])")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """A time such as `90s` or `1h30m`, in nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the nanoseconds."""
        if isinstance(value, int):
            return value
        parts = _DURATION.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            raise not_allowed(value, "a time such as 500ms, 90s, 1h30m or 7d", param, ctx)
        return sum(int(number) * _UNITS[unit] for number, unit in parts)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the placeholder of the help."""
        return "TIME"


class Name(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """The name of a stream or consumer: one token of a subject."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        text = str(value)
        if not text or not text.isprintable() or any(each in text for each in " .*>/\\"):
            raise not_allowed(text, "a name without spaces, '.', '*' and '>'", param, ctx)
        return text


class Storage(StrEnum):
    """Where a stream is kept."""

    FILE = "file"
    MEMORY = "memory"


class Retention(StrEnum):
    """What removes the messages of a stream."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class Discard(StrEnum):
    """What a stream does at its limits."""

    OLD = "old"
    NEW = "new"


class AckPolicy(StrEnum):
    """Which messages of a consumer are acknowledged."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"


class Replay(StrEnum):
    """How fast a consumer delivers."""

    INSTANT = "instant"
    ORIGINAL = "original"


def read_config(path: Path | None) -> dict[str, Json]:
    """Return the configuration in a JSON file; empty without a file.

    Raises:
        ToolUsageError: it cannot be read, or is no JSON object.
    """
    if path is None:
        return {}
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ToolUsageError(f"--config={path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ToolUsageError(f"--config={path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ToolUsageError(f"--config={path} is no JSON object")
    # `info --json` prints the configuration within what it says of the stream or consumer.
    inner = found.get("config")
    return inner if isinstance(inner, dict) else found


def given(values: Mapping[str, object]) -> dict[str, Json]:
    """Return the fields whose options were given."""
    found: dict[str, Json] = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            if value:
                found[name] = [str(each) for each in value]
        elif isinstance(value, bool | int | str):
            found[name] = str(value) if isinstance(value, StrEnum) else value
    return found


def time_text(value: Json) -> str:
    """Return nanoseconds as text, such as `1h30m`; `-` for none."""
    if not isinstance(value, int) or value <= 0:
        return "-"
    text, left = "", value
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _UNITS[unit])
        text += f"{count}{unit}" if count else ""
    milliseconds = left // _UNITS["ms"]
    return text + (f"{milliseconds}ms" if milliseconds or not text else "")


def limit_text(value: Json) -> str:
    """Return a limit as text; `unlimited` for -1 and 0."""
    return str(value) if isinstance(value, int) and value > 0 else "unlimited"


def confirm(question: str, *, is_asked: bool) -> None:
    """Ask before something is lost; click ends the command at "no"."""
    if is_asked:
        click.confirm(question, abort=True, err=True)
