"""Fixtures of the tests of tables."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.utils.concurrent import ExecutorFactory


@pytest.fixture(scope="session", autouse=True)
def library_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the threads of the libraries, which live as long as the process, with their sockets."""
    schema = pa.schema([("id", pa.int64())])
    monkey = pytest.MonkeyPatch()
    monkey.setenv("PYICEBERG_MAX_WORKERS", "1")
    ExecutorFactory.get_or_create().submit(int).result()
    monkey.undo()
    DeltaTable.create(str(tmp_path_factory.mktemp("delta")), schema).to_pyarrow_table()
