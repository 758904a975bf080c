"""Finds what a ``$ref`` refers to: in the schema itself, or in the schemas that the registry has by name.

Nothing else is ever read: an address such as http://... or file:///... that no reference of the schema has as
its name is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urljoin

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.json.dialects import Dialect, dialect_of, dialect_of_address

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Document:
    """A whole schema: the one that is parsed, or one that it refers to."""

    name: str
    value: object
    base: str
    """Its address, which its relative references resolve against; empty if it has none."""
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Place:
    """A subschema, with what its references resolve against."""

    value: object
    base: str
    document: Document

    def child(self, value: object) -> "Place":
        """Return the place of a value within this one."""
        return Place(value, _base_of(value, self.base, self.document.dialect), self.document)


class Documents:
    """The schema that is parsed, and those that it refers to by name."""

    def __init__(self, root: object, dependencies: Mapping[str, object]) -> None:
        dialect = dialect_of(root)
        base = _base_of(root, "", dialect)
        self.root: Final = Document("the schema", root, base, dialect)
        self._places: Final[dict[str, Place]] = {}
        self._index(self.root)
        for name, value in dependencies.items():
            address = _resolved(base, name)
            own = dialect_of(value, dialect)
            document = Document(
                f"the reference {name!r:.{_SHOWN}}", value, _base_of(value, address, own), own
            )
            place = Place(value, document.base, document)
            for each in (address, name, f"./{name}"):
                self._places.setdefault(each.removesuffix("#"), place)
            self._index(document)

    @property
    def start(self) -> Place:
        """The place of the schema that is parsed."""
        return Place(self.root.value, self.root.base, self.root)

    def find(self, reference: str, place: Place) -> Place:
        """Return what a ``$ref`` at a place refers to.

        Raises:
            InvalidSchemaError: There is nothing of this name, or it is no schema.
        """
        absolute = _resolved(place.base, reference)
        found = self._places.get(absolute.removesuffix("#"))
        if found is None:
            found = self._by_pointer(reference, absolute, place)
        if not isinstance(found.value, dict | bool):
            raise InvalidSchemaError(f"the $ref {reference!r:.{_SHOWN}} refers to no schema")
        return found

    def _by_pointer(self, reference: str, absolute: str, place: Place) -> Place:
        address, _, fragment = absolute.partition("#")
        own_address = reference.partition("#")[0]
        if dialect_of_address(address):
            return Place(True, address, place.document)
        whole = Place(place.document.value, place.document.base, place.document)
        if own_address:
            resource = self._places.get(address) or self._places.get(own_address)
            if resource is None:
                raise InvalidSchemaError(
                    f"the $ref {reference!r:.{_SHOWN}} is not in the schema, and no reference has this name; "
                    "Kalda fetches no schema from elsewhere: register it and add it to the references"
                )
            candidates = [resource]
        else:
            candidates = [self._places.get(place.base, whole), whole]
        for candidate in candidates:
            found = _evaluated(unquote(fragment), candidate)
            if found is not None:
                return found
        raise InvalidSchemaError(
            f"the $ref {reference!r:.{_SHOWN}} of {place.document.name} refers to nothing"
        )

    def _index(self, document: Document) -> None:
        """Remember the subschemas that have a name."""
        waiting = [Place(document.value, document.base, document)]
        while waiting:
            place = waiting.pop()
            value = place.value
            if isinstance(value, dict):
                for address in _addresses(value, place):
                    self._places.setdefault(address, place)
                waiting += [
                    place.child(each)
                    for name, each in value.items()
                    if isinstance(each, dict) or (isinstance(each, list) and name != "enum")
                ]
            elif isinstance(value, list):
                waiting += [place.child(each) for each in value if isinstance(each, dict | list)]


def _addresses(value: dict[str, object], place: Place) -> Iterator[str]:
    name = value.get(place.document.dialect.id_keyword)
    if isinstance(name, str) and place.base:
        yield place.base
    if isinstance(name, str) and name.startswith("#"):
        yield f"{place.base}{name}"
    for keyword in ("$anchor", "$dynamicAnchor"):
        anchor = value.get(keyword)
        if isinstance(anchor, str):
            yield f"{place.base}#{anchor}"


def _base_of(value: object, base: str, dialect: Dialect) -> str:
    name = value.get(dialect.id_keyword) if isinstance(value, dict) else None
    if not isinstance(name, str) or name.startswith("#"):
        return base
    return _resolved(base, name).partition("#")[0]


def _resolved(base: str, reference: str) -> str:
    """Return an address that is relative to another one; nothing is read from either.

    Raises:
        InvalidSchemaError: The address is malformed.
    """
    if not base or _SCHEME.match(reference):
        return reference
    if reference.startswith("#"):
        return f"{base.partition('#')[0]}{reference}"
    scheme = _SCHEME.match(base)
    try:
        # `urljoin` joins paths of the schemes that it knows only.
        if scheme is None:
            return urljoin(base, reference)
        joined = urljoin(f"http:{base[scheme.end() :]}", reference)
    except ValueError as error:
        raise InvalidSchemaError(f"the address {reference!r:.{_SHOWN}} is malformed: {error}") from error
    return scheme.group() + joined.removeprefix("http:")


def _evaluated(pointer: str, place: Place) -> Place | None:
    """Return what a JSON pointer names, or None."""
    if not pointer:
        return place
    if not pointer.startswith("/"):
        return None
    keys = [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]
    if keys[0] == "$defs" and len(keys) > 1 and not _has(place.value, "$defs", keys[1]):
        keys[0] = "definitions"  # the name in older drafts; Confluent's registry finds them by both
    for key in keys:
        value = place.value
        if isinstance(value, dict) and key in value:
            place = place.child(value[key])
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            place = place.child(value[int(key)])
        else:
            return None
    return place


def _has(value: object, group: str, name: str) -> bool:
    found = value.get(group) if isinstance(value, dict) else None
    return isinstance(found, dict) and name in found
