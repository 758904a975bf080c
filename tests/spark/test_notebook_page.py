"""The cells of the page on notebooks run in a session."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from tests.spark.pipelines import records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topics

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/notebooks.md"


def test_the_cells_read_write_and_stream(spark: "SparkSession", topics: "Topics", tmp_path: Path) -> None:
    """One after the other in one namespace, as a notebook runs them."""
    topic, doubled = topics.create("notebook"), topics.create("notebook-doubled")
    topics.fill(topic, [json.dumps({"id": number, "amount": number + 0.5}).encode() for number in range(3)])
    cells = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    replaced = {
        "broker-1.internal:9092": topics.bootstrap,
        '"orders.doubled"': f'"{doubled}"',
        '"orders"': f'"{topic}"',
        "/Volumes/main/default": str(tmp_path),
    }
    names: dict[str, object] = {"spark": spark}
    for cell in cells:
        for old, new in replaced.items():
            cell = cell.replace(old, new)
        exec(cell, names)
    found = {each.key: each.value for each in records_of(topics.bootstrap, doubled, 3)}
    assert {b"0": b'{"id":0,"doubled":1.0}', b"2": b'{"id":2,"doubled":5.0}'}.items() <= found.items()
    assert 3 == pq.read_table(tmp_path / "orders").num_rows
