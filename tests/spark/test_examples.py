"""The pipeline files in `examples` do what their pages say."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("sqlglot")

from tests.spark.pipelines import read_pipelines, records_of, rows_of, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _text(name: str, **topics: str) -> str:
    """Return an example's file with the names of topics that belong to this test."""
    text = (EXAMPLES / name / "pipeline.yml").read_text(encoding="utf-8")
    for topic, own in topics.items():
        text = text.replace(f"topic: {topic.replace('_', '.')}", f"topic: {own}")
    return text


def _json(*rows: object) -> list[bytes | None]:
    return [None if row is None else json.dumps(row).encode() for row in rows]


def test_a_changelog_and_a_cdc_topic_become_tables(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """The last value of each key counts; deletes by a tombstone and by Debezium's `op` remove rows."""
    customers = topics.create("customers")
    topics.fill(
        customers,
        _json(
            {"name": "Ann", "city": "Ulm"},
            {"name": "Bo", "city": "Ulm"},
            {"name": "Ann", "city": "Bonn"},
            None,
        ),
        keys=[b"1", b"2", b"1", b"2"],
    )
    changelog = read_pipelines(_text("changelog", customers=customers), topics.bootstrap, tmp_path / "a")
    run_once(spark, changelog)
    assert [{"id": "1", "name": "Ann", "city": "Bonn"}] == rows_of(changelog, "customers")

    orders = topics.create("orders-cdc")

    def change(op: str, lsn: int, before: object, after: object) -> dict[str, object]:
        return {"before": before, "after": after, "source": {"lsn": lsn}, "op": op, "ts_ms": lsn}

    one, two = ({"id": each, "status": "new", "amount": 1.5} for each in (1, 2))
    paid = {"id": 1, "status": "paid", "amount": 1.5}
    topics.fill(
        orders,
        _json(
            change("u", 12, one, paid),
            change("c", 10, None, one),
            change("c", 11, None, two),
            change("d", 13, two, None),
            None,
        ),
    )
    cdc = read_pipelines(_text("cdc", shop_public_orders=orders), topics.bootstrap, tmp_path / "b")
    run_once(spark, cdc)
    assert [{"id": 1, "status": "paid", "amount": 1.5, "lsn": 12, "op": "u"}] == rows_of(cdc, "orders_now")


def test_hourly_folders_with_counts(spark: "SparkSession", topics: "Topics", tmp_path: Path) -> None:
    """As Camus did it: folders by the time of the event, and the counts in a topic."""
    clicks = topics.create("clicks")
    times = ["2026-01-01T10:05:00Z", "2026-01-01T10:55:00Z", "2026-01-01T11:00:00Z"]
    topics.fill(clicks, _json(*({"user": "u", "page": "p", "ts": time} for time in times)))
    counts = f"{clicks}.counts"
    text = _text("camus", clicks=clicks).replace(f"topic: {clicks}.counts", f"topic: {counts}")
    file = read_pipelines(text, topics.bootstrap, tmp_path)
    run_once(spark, file)

    folders = {
        str(path.parent.relative_to(tmp_path / "state" / "tables" / "hourly" / "clicks"))
        for path in (tmp_path / "state" / "tables" / "hourly" / "clicks").rglob("*.parquet")
    }
    assert {"day=2026-01-01/hour=10", "day=2026-01-01/hour=11"} == folders
    found = [json.loads(each.value or b"") for each in records_of(topics.bootstrap, counts, 2)]
    assert [1, 2] == sorted(each["records"] for each in found)


def test_a_mirror_copies_topics_under_another_name(topics: "Topics", tmp_path: Path) -> None:
    """One cluster plays both parts, which needs the prefix."""
    name = topics.create("orders")
    topics.fill(name, [b"a", b"b"])
    text = _text("mirror").replace('"orders.*"', name)
    file = read_pipelines(text, topics.bootstrap, tmp_path, SOURCE=topics.bootstrap, TARGET=topics.bootstrap)
    from kalda.pipelines.engine.supervisor import Supervisor

    errors = Supervisor(None, file, file.pipelines, is_once=True).run()
    assert not errors, [str(each) for each in errors]
    assert [b"a", b"b"] == [each.value for each in records_of(topics.bootstrap, f"east.{name}", 2)]
