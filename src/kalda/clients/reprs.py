"""Shows clients, records and results at a glance: in a debugger, a log, a notebook."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kalda.clients.config.common_config import CommonClientConfig

VALUE_CHARACTERS_MAX: Final = 200
"""How much of a value is shown: a line or two."""

_ROWS_MAX: Final = 100
"""Rows of a table in a notebook; a cluster has thousands of partitions."""


def client_repr(client: object, config: "CommonClientConfig | None", state: str) -> str:
    """Return ``<Producer 127.0.0.1:9092 client_id=producer-1 open>``, with the group where there is one.

    `config` is None for a client whose constructor has failed.
    """
    name = type(client).__name__
    if config is None:
        return f"<{name} {state}>"
    group = getattr(config, "group_id", None)
    words = [name, ",".join(config.bootstrap_servers)]
    words += [f"client_id={config.client_id}"] if config.client_id else []
    words += [f"group_id={group}"] if group else []
    return f"<{' '.join([*words, state])}>"


def short(value: object) -> str:
    """Return the repr of a value, cut where it is long.

    >>> short(b"x" * 1000)[:8], short(b"x" * 1000)[-16:]
    ("b'xxxxxx", "... (1000 bytes)")
    """
    if isinstance(value, bytes | bytearray | memoryview | str) and len(value) > VALUE_CHARACTERS_MAX:
        # Cut first: the repr of a large value is four times its size.
        start = value[:VALUE_CHARACTERS_MAX]
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{bytes(start) if isinstance(start, memoryview) else start!r}... ({len(value)} {unit})"
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."


def record_repr(record: object, values: Mapping[str, object]) -> str:
    """Return ``Name(field=value, …)`` with long values cut."""
    return f"{type(record).__name__}({', '.join(f'{name}={short(value)}' for name, value in values.items())})"


def html_table(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table for a notebook; what is no text is shown by its repr."""
    cells = [[each if isinstance(each, str) else short(each) for each in row] for row in rows]
    more = f"<p>and {len(cells) - _ROWS_MAX} more</p>" if len(cells) > _ROWS_MAX else ""
    head = "".join(f"<th>{escape(each)}</th>" for each in heading)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in cells[:_ROWS_MAX]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def fields_html(value: Any) -> str:
    """Return a table of the fields of a dataclass."""
    names = [each.name for each in fields(value)]
    return html_table((type(value).__name__, ""), [(name, getattr(value, name)) for name in names])
