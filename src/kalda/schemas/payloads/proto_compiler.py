"""Compiles Protobuf schemas to descriptors, with the parser of the registry."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from kalda.schemas.errors import SchemaError
from kalda.schemas.model import Schema, SchemaType
from kalda.schemas.payloads.errors import UnusableSchemaError

BASE64: Final = "base64:"
"""Marks a schema that is a compiled FileDescriptorSet."""


def compile_proto(text: str, references: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the descriptor set of a .proto text, or of base64 text that is one; its own file is the last.

    Args:
        text: The schema.
        references: Name and text of each file that it imports, each after those that it imports itself.

    Raises:
        UnusableSchemaError: The text does not compile.
        ModuleNotFoundError: protobuf is not installed.
    """
    if text.startswith(BASE64):
        try:
            return base64.b64decode(text.removeprefix(BASE64), validate=True)
        except binascii.Error as error:
            raise UnusableSchemaError(
                f"the schema starts with {BASE64} and is not base64: {error}"
            ) from error
    # Imported only when needed: most processes compile no Protobuf.
    from kalda.schemas.protobuf.parsing import parse

    try:
        schema = parse(Schema(SchemaType.PROTOBUF, text), dict(references), is_new=False)
        return schema.descriptor_set()
    except (SchemaError, RecursionError) as error:
        reason = str(error) or "it is nested too deeply"
        raise UnusableSchemaError(f"the Protobuf schema does not compile: {reason[:400]}") from None
