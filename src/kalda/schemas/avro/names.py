"""Checks names of Avro types, fields and namespaces."""

from kalda.schemas.errors import InvalidSchemaError


def check_name(name: str, *, is_strict: bool) -> None:
    """Check a name without dots.

    Args:
        name: The name.
        is_strict: Whether letters and digits are those of ASCII, as in Avro's specification. Java's library
            took any letter until its release 1.12, so stored schemas may have others.

    Raises:
        InvalidSchemaError: It is no name.
    """
    if not name:
        raise InvalidSchemaError("Empty name")
    if is_strict and not name.isascii():
        raise InvalidSchemaError(f"Illegal character in: {name:.100}")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidSchemaError(f"Illegal initial character: {name:.100}")
    if not all(each.isalpha() or each.isdecimal() or each == "_" for each in name):
        raise InvalidSchemaError(f"Illegal character in: {name:.100}")


def check_full_name(name: str, *, is_strict: bool) -> None:
    """Check a name with its namespace.

    Raises:
        InvalidSchemaError: It is none.
    """
    *spaces, last = name.split(".")
    for what, each in [*(("Namespace part", each) for each in spaces), ("Name", last)]:
        try:
            check_name(each, is_strict=is_strict)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f'{what} "{each:.100}" is invalid: {error.reason}') from None
