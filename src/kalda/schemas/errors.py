"""Defines the errors of schemas that a user sent."""


class SchemaError(ValueError):
    """A schema, or what was asked of it, is not usable as it is."""


class InvalidSchemaError(SchemaError):
    """The text is no schema of its type.

    Args:
        reason: What is wrong and where, for the person who sent the text.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnknownSchemaTypeError(SchemaError):
    """The type of a schema is none that Kalda knows."""

    def __init__(self, found: object) -> None:
        super().__init__(f"Invalid schema type {found!s:.100}; allowed are AVRO, JSON and PROTOBUF")


class UnknownCompatibilityLevelError(SchemaError):
    """The text is no compatibility level."""

    def __init__(self, found: object, allowed: str) -> None:
        super().__init__(f"Invalid compatibility level {found!s:.100}; allowed are {allowed}")
