"""Builds the nodes of a schema from its JSON.

A definition is loaded once, when something refers to it. What nothing refers to is not loaded.
"""

from typing import Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.json.dialects import Dialect
from kalda.schemas.json.documents import Documents, Place
from kalda.schemas.json.modern_drafts import build_modern
from kalda.schemas.json.nodes import Anything, Node, Nothing, Reference
from kalda.schemas.json.older_drafts import build_older
from kalda.schemas.json.text import canonical


class Loader:
    """Loads the schema that is parsed and the definitions that it uses."""

    def __init__(self, documents: Documents) -> None:
        self._documents: Final = documents
        self._definitions: Final[dict[tuple[int, str], Node]] = {}
        self._pending: Final[list[tuple[Reference, Place]]] = []
        self._references: Final[list[Reference]] = []

    def load(self) -> Node:
        """Return the node of the schema; each reference in it has its target.

        Raises:
            InvalidSchemaError: A keyword has a value that is not possible, or a reference refers to nothing.
        """
        root = self._definition(self._documents.start)
        while self._pending:
            reference, place = self._pending.pop()
            reference.target = self._definition(place)
        for reference in self._references:
            _shorten(reference)
        if isinstance(root, Reference):
            assert root.target is not None
            return root.target
        return root

    def _definition(self, place: Place) -> Node:
        key = id(place.value), place.base
        if isinstance(place.value, bool) or key not in self._definitions:
            self._definitions[key] = Scope(self, place).node()
        return self._definitions[key]

    def refer(self, reference: Reference, name: str, place: Place) -> None:
        """Give a reference its target later, so that definitions may refer to each other."""
        self._references.append(reference)
        self._pending.append((reference, self._documents.find(name, place)))


class Scope:
    """A subschema that is loaded, and how what it consists of is."""

    def __init__(self, loader: Loader, place: Place) -> None:
        self._loader: Final = loader
        self._place: Final = place

    @property
    def dialect(self) -> Dialect:
        """The draft of the document."""
        return self._place.document.dialect

    def node(self) -> Node:
        """Return the node of the subschema."""
        value = self._place.value
        if isinstance(value, bool):
            return Anything(source=value) if value else Nothing(source=value)
        if not isinstance(value, dict):
            raise InvalidSchemaError(f"a schema is an object, true or false; found {canonical(value):.100}")
        build = build_modern if self.dialect.is_modern else build_older
        node = build(value, self)
        _annotate(node, value, self.dialect)
        return node

    def child(self, value: object) -> Node:
        """Return the node of a subschema of this one."""
        return Scope(self._loader, self._place.child(value)).node()

    def reference(self, name: object) -> Reference:
        """Return the node of a ``$ref``."""
        if not isinstance(name, str):
            raise InvalidSchemaError(f"a $ref is a text; found {canonical(name):.100}")
        reference = Reference()
        self._loader.refer(reference, name, self._place)
        return reference


def _annotate(node: Node, value: dict[str, object], dialect: Dialect) -> None:
    node.source = value
    identity = value.get(dialect.id_keyword)
    # Confluent's registry does not look at it in the modern drafts.
    node.id = identity if isinstance(identity, str) and not dialect.is_modern else None
    title, description = value.get("title"), value.get("description")
    node.title = title if isinstance(title, str) else None
    node.description = description if isinstance(description, str) else None
    node.default = canonical(value["default"]) if "default" in value else None
    node.is_bytes = value.get("connect.type") == "bytes"


def _shorten(reference: Reference) -> None:
    """Let a reference to references refer to what the last one refers to.

    Raises:
        InvalidSchemaError: They refer to each other, and to nothing else.
    """
    chain: dict[int, Reference] = {}
    node: Node | None = reference
    while isinstance(node, Reference):
        if id(node) in chain:
            raise InvalidSchemaError("a $ref refers to itself, and to nothing else")
        chain[id(node)] = node
        node = node.target
    for each in chain.values():
        each.target = node
