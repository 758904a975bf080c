"""Fixtures of the tests of tables."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.iceberg_threads import start_threads


@pytest.fixture(scope="session", autouse=True)
def library_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the threads of the libraries, which live as long as the process, with their sockets."""
    schema = pa.schema([("id", pa.int64())])
    start_threads()
    DeltaTable.create(str(tmp_path_factory.mktemp("delta")), schema).to_pyarrow_table()
