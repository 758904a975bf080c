"""Fixtures of the tests of tables."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable


@pytest.fixture(scope="session", autouse=True)
def delta_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the threads of the Delta library, whose sockets live as long as the process."""
    schema = pa.schema([("id", pa.int64())])
    DeltaTable.create(str(tmp_path_factory.mktemp("delta")), schema).to_pyarrow_table()
