"""Defines the request of a `kalda sql` as values. It imports nothing of the extra [sql]."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kalda.command.errors import ToolUsageError

TEXT = "text"
BYTES = "bytes"


class RowForm(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """One statement and its options."""

    statement: str
    form: RowForm
    output_file: Path | None
    is_key_text: bool
    value_format: str
    """`TEXT`, `BYTES`, or one of `kalda.formats.FORMATS`."""

    value_schema: str | None
    value_schema_file: Path | None
    value_options: Mapping[str, str]
    skips_errors: bool
    has_external_access: bool

    def check(self) -> None:
        """Raise `ToolUsageError` for options that contradict each other."""
        has_schema = self.value_schema is not None or self.value_schema_file is not None
        if self.value_format in (TEXT, BYTES):
            if has_schema or self.value_options:
                raise ToolUsageError(
                    f"--value-format={self.value_format} has no schema and no options; "
                    "name a format such as json or avro"
                )
        elif self.value_schema is not None and self.value_schema_file is not None:
            raise ToolUsageError("--value-schema and --value-schema-file are both given; give one")
