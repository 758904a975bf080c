"""Bounds and writes what tools return: records as text, settings without secrets. Pure functions."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kalda.common.json_text import strict_json

if TYPE_CHECKING:
    from kalda.clients.admin.configs import ConfigEntry
    from kalda.clients.values import ConsumerRecord

Answer = dict[str, Any]

ITEMS_MAX: Final = 200
"""Things in one list of an answer: an agent has to read it all, and asks for less or for the next part."""

TEXT_MAX: Final = 2000
"""Characters of one key, value or header."""

ANSWER_CHARACTERS_MAX: Final = 100_000
"""Of one answer; records are left out from the end until it fits."""

_HIDDEN: Final = "(hidden)"
_SECRET: Final = re.compile(
    r"password|secret|jaas|token|\.key$|auth\.user\.info|metrics\.login", re.IGNORECASE
)
_SECRET_EXCEPTIONS: Final = re.compile(
    r"\.(ms|num|per\.user\.max|iterations|length|algorithm|endpoint\.url)$"
)


def bounded(items: Iterable[Any], limit: int = ITEMS_MAX) -> tuple[list[Any], int]:
    """Return the first items, and how many are left out."""
    found = list(items)
    return found[:limit], max(0, len(found) - limit)


def listed(name: str, items: Iterable[Any], limit: int = ITEMS_MAX) -> Answer:
    """Return an answer with a list, and the number of items that were left out if any were.

    >>> listed("topics", ["a", "b", "c"], 2)
    {'topics': ['a', 'b'], 'left_out': 1}
    """
    shown, left_out = bounded(items, limit)
    return {name: shown, **({"left_out": left_out} if left_out else {})}


def bytes_answer(data: bytes | None) -> Any:
    """Return bytes as text, or as base64 if they are no text; what is long is cut and says so.

    >>> bytes_answer(b"abc"), bytes_answer(None), bytes_answer(bytes([255]))
    ('abc', None, {'base64': '/w==', 'bytes': 1})
    """
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        part = data[: TEXT_MAX * 3 // 4]
        return {"base64": base64.b64encode(part).decode(), "bytes": len(data)}
    return text if len(text) <= TEXT_MAX else {"text": text[:TEXT_MAX], "is_cut": True, "bytes": len(data)}


def record_answer(record: "ConsumerRecord[bytes | None, bytes | None]") -> Answer:
    """Return one record."""
    answer: Answer = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": bytes_answer(record.key),
        "value": bytes_answer(record.value),
    }
    if record.headers:
        shown, left_out = bounded(record.headers, 20)
        answer["headers"] = [[name, bytes_answer(value)] for name, value in shown]
        if left_out:
            answer["headers_left_out"] = left_out
    return answer


def fitted(answer: Answer, name: str, items: Sequence[Answer]) -> Answer:
    """Return the answer with as many of the items as its bound allows; the others are counted."""
    left = ANSWER_CHARACTERS_MAX - len(strict_json(answer))
    shown = []
    for each in items:
        left -= len(strict_json(each)) + 2
        if left < 0:
            break
        shown.append(each)
    left_out = len(items) - len(shown)
    return {**answer, name: shown, **({"left_out": left_out} if left_out else {})}


def is_secret(name: str) -> bool:
    """Return whether a setting's value must not be shown, by its name.

    >>> is_secret("ssl.keystore.password"), is_secret("delegation.token.max.lifetime.ms")
    (True, False)
    """
    return bool(_SECRET.search(name)) and not _SECRET_EXCEPTIONS.search(name)


def setting_answer(entry: "ConfigEntry") -> Answer:
    """Return one setting with where its value is from, and what else could supply it."""
    hidden = entry.is_sensitive or is_secret(entry.name)
    answer: Answer = {
        "name": entry.name,
        "value": _HIDDEN if hidden else entry.value,
        "origin": entry.source.name.lower(),
    }
    if entry.is_read_only:
        answer["is_read_only"] = True
    if len(entry.synonyms) > 1 and not hidden:
        answer["origins"] = [
            {"name": each.name, "value": each.value, "origin": each.source.name.lower()}
            for each in entry.synonyms
            if not is_secret(each.name)
        ]
    return answer


def scrubbed(document: Any) -> Any:
    """Return a document of JSON with the values of secrets hidden, however deep they are.

    >>> scrubbed({"after": {"sasl.jaas.config": "x", "retention.ms": "1"}})
    {'after': {'sasl.jaas.config': '(hidden)', 'retention.ms': '1'}}
    """
    if isinstance(document, dict):
        return {
            name: _HIDDEN if is_secret(name) or name.startswith("SCRAM-") else scrubbed(value)
            for name, value in document.items()
        }
    return [scrubbed(each) for each in document] if isinstance(document, list) else document


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the values of secrets hidden, for the audit log and for answers."""
    return {name: _HIDDEN if is_secret(name) else value for name, value in settings.items()}
