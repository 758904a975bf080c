"""The topics that a pipeline with a pattern reads."""

from pathlib import Path

import pytest

from kalda.pipelines.engine.source_settings import source_options
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.spark.source.java_regex import translate_java_regex

NAMES = ("orders", "orders.eu", "old-orders", "p.dlq", "p.dlq.retry", "p.dlq.retry2", "orders.big")


def read_by(pattern: str, target: str = "table: lake.t", more: str = "") -> set[str]:
    text = f"""
name: shop
storage: state
clusters: {{far: {{bootstrap.servers: "b:1"}}}}
pipelines:
  - {{name: p, from: {{pattern: '{pattern}'}}, to: {{{target}}}{more}}}
"""
    file = parse_pipeline_file(text, "p.yml", directory=Path("/"), variables={})
    (spec,) = file.pipelines
    expression = source_options(spec, file.cluster("main"))["subscribePattern"]
    # The source looks for it anywhere in a name.
    return {name for name in NAMES if translate_java_regex(expression).search(name)}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", {"orders"}),
        ("orders|old-orders", {"orders", "old-orders"}),
        (r"orders\..*", {"orders.eu", "orders.big"}),
    ],
)
def test_a_pattern_stands_for_whole_names(pattern: str, expected: set[str]) -> None:
    """And the topic of replayed dead letters is read as well."""
    assert expected | {"p.dlq.retry"} == read_by(pattern, more=", on_error: dlq")
    assert expected == read_by(pattern, more=", on_error: fail")


def test_a_pipeline_does_not_read_what_it_writes() -> None:
    """Each of its dead letters would become another one, and each row another row."""
    assert "p.dlq" not in read_by(".*", more=", on_error: dlq")
    assert "orders.big" not in read_by(".*", "topic: orders.big")
    assert "orders.big" in read_by(".*", "topic: orders.big, cluster: far")
