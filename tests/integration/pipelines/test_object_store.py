"""Tables in an object store that speaks S3, with options in one spelling for every format."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

from kalda.pipelines.spec.model import TableFormat, TableSpec, WriteMode
from kalda.pipelines.tables import TableSpecError, TaskId, open_table
from kalda.pipelines.tables.object_store import check_options, delta_options
from kalda.pipelines.tables.upsert import DELETE, OFFSET, PARTITION
from tests.leftovers import SHARED_SOCKETS
from tests.unit.pipelines.tables.conftest import library_threads  # noqa: F401  # a fixture of the session
from tests.unit.pipelines.tables.table_cases import QUERY, account, append, ids_of, orders, rows_of

KEYS = {"s3.region": "us-east-1", "s3.access-key-id": "key", "s3.secret-access-key": "secret"}


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """A store with the bucket `lake`, and the options that reach it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {"s3.endpoint": f"http://{host}:{port}", **KEYS}
    pafs.S3FileSystem(
        endpoint_override=f"{host}:{port}",
        scheme="http",
        region="us-east-1",
        access_key="key",
        secret_key="secret",
        allow_bucket_creation=True,
    ).create_dir("lake")
    sockets = partial(connected_to, port)
    SHARED_SOCKETS.append(sockets)  # the libraries keep connections as long as the process lives
    yield found
    SHARED_SOCKETS.remove(sockets)
    server.stop()


def connected_to(port: int) -> list[int]:
    """Return the descriptors of this process's connections with a port, at either end."""
    connections = psutil.Process().net_connections("tcp")
    return [each.fd for each in connections if port in (each.laddr[1], *each.raddr[1:])]


def spec_of(kind: TableFormat, options: dict[str, str], directory: Path, **more: object) -> TableSpec:
    catalog = {}
    if kind is TableFormat.ICEBERG:
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": "s3://lake/iceberg",
        }
    name = f"{kind.value}{len(more)}"
    path = f"s3://lake/{directory.name}/{name}"
    return TableSpec(table=f"lake.{name}", path=path, format=kind, options=options, catalog=catalog, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", TableFormat)
def test_a_table_is_written_and_read_with_the_same_options(
    kind: TableFormat, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta took other names for its log than for its files, so that no option could reach both."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    table = open_table(spec_of(kind, options, tmp_path, partition_by=("country",)))

    append(table, 0, orders(0, 10), orders(10, 10))
    append(open_table(spec_of(kind, options, tmp_path, partition_by=("country",))), 1, orders(20, 5))

    found = open_table(spec_of(kind, options, tmp_path, partition_by=("country",)))
    assert list(range(25)) == ids_of(found)
    assert 1 == found.committed_batch(QUERY)


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_rows_are_replaced_in_the_store(kind: TableFormat, options: dict[str, str], tmp_path: Path) -> None:
    table = open_table(spec_of(kind, options, tmp_path, mode=WriteMode.UPSERT, keys=("id",)))
    hidden = pa.schema([(PARTITION, pa.int32()), (OFFSET, pa.int64()), (DELETE, pa.bool_())])

    for batch, ids in ((0, [1, 2]), (1, [2, 3])):
        columns = {
            "id": ids,
            "name": [f"{batch}"] * 2,
            PARTITION: [0, 0],
            OFFSET: [1, 2],
            DELETE: [False] * 2,
        }
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), *hidden])
        rows = pa.RecordBatch.from_pydict(columns, schema)
        plain = pa.schema([("id", pa.int64()), ("name", pa.string())])
        table.prepare_schema(plain)
        files = table.upsert_writer(plain).write([rows], TaskId(QUERY, batch, 0))
        table.upsert(account(batch, 2), files)

    assert [(1, "0"), (2, "1"), (3, "1")] == [(row["id"], row["name"]) for row in rows_of(table)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "k"},
            "AWS_ACCESS_KEY_ID, which is no option of S3. Did you mean s3.access-key-id?",
        ),
        ({"key": "k"}, "It takes s3.endpoint, s3.region, "),
        ({"s3.anonymous": "yes"}, "options has s3.anonymous=yes; it takes true or false"),
        ({"s3.endpoint": "localhost:9000"}, "it takes http://HOST:PORT or https://"),
        ({"s3.access-key-id": "k"}, "it takes both"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(TableSpecError) as caught:
        check_options("s3://lake/orders", given)
    assert message in str(caught.value)
    check_options("gs://lake/orders", given)


def test_delta_reaches_a_store_without_encryption() -> None:
    assert {
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_SKIP_SIGNATURE": "true",
    } == delta_options("s3a://lake/x", {"s3.endpoint": "http://minio:9000", "s3.anonymous": "true"})
    assert delta_options("s3://lake/x", {}) is None
