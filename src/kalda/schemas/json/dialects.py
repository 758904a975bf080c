"""Determines the draft of a JSON schema, and validates the schema by the draft's meta schema."""

from decimal import Decimal
from enum import Enum
from typing import Final

from kalda.schemas.errors import InvalidSchemaError

_NUMBER_MAX: Final = 10**300


class Dialect(Enum):
    """A draft; its value is the address of its meta schema, without the scheme."""

    DRAFT_4 = "json-schema.org/draft-04/schema"
    DRAFT_6 = "json-schema.org/draft-06/schema"
    DRAFT_7 = "json-schema.org/draft-07/schema"
    DRAFT_2019_09 = "json-schema.org/draft/2019-09/schema"
    DRAFT_2020_12 = "json-schema.org/draft/2020-12/schema"

    @property
    def id_keyword(self) -> str:
        """The keyword that names a schema."""
        return "id" if self is Dialect.DRAFT_4 else "$id"

    @property
    def is_modern(self) -> bool:
        """Whether keywords count beside ``$ref``, and tuples have a keyword of their own."""
        return self in (Dialect.DRAFT_2019_09, Dialect.DRAFT_2020_12)


_BY_ADDRESS: Final = {each.value: each for each in Dialect} | {"json-schema.org/schema": Dialect.DRAFT_4}


def dialect_of_address(address: str) -> Dialect | None:
    """Return the draft whose meta schema has an address, with http or https; None for any other address."""
    scheme, _, rest = address.removesuffix("#").partition("://")
    return _BY_ADDRESS.get(rest) if scheme in ("http", "https") else None


def dialect_of(value: object, default: Dialect = Dialect.DRAFT_7) -> Dialect:
    """Return the draft of a schema's ``$schema``; `default` if it names none, or one that is not known."""
    address = value.get("$schema") if isinstance(value, dict) else None
    return (dialect_of_address(address) if isinstance(address, str) else None) or default


def check_by_meta_schema(value: object, dialect: Dialect) -> None:
    """Check a schema against the meta schema of its draft.

    Raises:
        InvalidSchemaError: It is not valid; the message names the keyword and the value.
    """
    import jsonschema_rs

    if isinstance(value, bool):
        return
    if not isinstance(value, dict):
        raise InvalidSchemaError(f"a JSON schema is an object, true or false; found {type(value).__name__}")
    # With an address that it does not know, the package would open a connection to fetch the meta schema.
    address = f"https://{dialect.value}" if dialect.is_modern else f"http://{dialect.value}#"
    checked = {**_with_floats(value), "$schema": address}
    try:
        jsonschema_rs.meta.validate(checked)
    except jsonschema_rs.ValidationError as error:
        path = "/".join(map(str, error.instance_path))
        raise InvalidSchemaError(f"at #/{path}: {error.message:.500}") from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchemaError(f"it cannot be checked: {error!s:.500}") from error


def _with_floats(value: dict[str, object]) -> dict[str, object]:
    """Return a copy with numbers of a size that the validator takes; their sign is what it checks."""
    return {name: _bounded(each) for name, each in value.items()}


def _bounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _bounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_bounded(each) for each in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal):
        return _bounded_number(value)
    return value


def _bounded_number(value: int | Decimal) -> int | float:
    if not -_NUMBER_MAX <= value <= _NUMBER_MAX:
        return _NUMBER_MAX if value >= _NUMBER_MAX else -_NUMBER_MAX
    # Zero is excluded as a divisor, so a tiny number must not become it.
    return value if isinstance(value, int) else float(value) or (1e-300 if value > Decimal() else 0.0)
