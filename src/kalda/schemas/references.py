"""Collects the texts that a registered schema refers to, directly or not; the caller asks the registry."""

from collections.abc import Callable, Mapping
from typing import Final

from kalda.schemas.errors import InvalidSchemaError

REFERENCES_MAX: Final = 200
"""Schemas that one may use; each is a request."""

Get = Callable[[str, int], Mapping[str, object] | None]
"""Returns the document of a subject's version; None if the registry has none."""


def texts_of_references(references: object, get: Get) -> dict[str, str]:
    """Return the texts of the schemas that references name, by name, each after those that it uses itself.

    Args:
        references: The field ``references`` of a schema's document; anything else than a list is none.
        get: Asks the registry.

    Raises:
        InvalidSchemaError: A reference is none, is not in the registry or refers to itself, or there are too
            many.
    """
    found: dict[str, str] = {}
    _add(references, get, found, ())
    return found


def _add(references: object, get: Get, found: dict[str, str], path: tuple[str, ...]) -> None:
    for reference in references if isinstance(references, list) else ():
        try:
            name, version = str(reference["name"]), int(reference["version"])
            subject = str(reference["subject"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidSchemaError(f"it has a reference that is none: {error!r}") from None
        if name in path:
            raise InvalidSchemaError(f"it refers to {name[:100]!r}, which refers to itself")
        if name in found:
            continue
        if len(found) + len(path) >= REFERENCES_MAX:
            raise InvalidSchemaError(f"it has more than {REFERENCES_MAX} references")
        document = get(subject, version)
        if document is None:
            raise InvalidSchemaError(f"it refers to {name[:100]!r}, which the registry does not have")
        _add(document.get("references"), get, found, (*path, name))
        found[name] = str(document.get("schema"))
