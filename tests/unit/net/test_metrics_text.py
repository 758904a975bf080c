"""The text that a scraper reads."""

from itertools import pairwise

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from kalda.common.metrics import Column, Metrics, RequestMetrics
from kalda.net.metrics_http import accepts_gzip, prefers_openmetrics
from kalda.net.metrics_text import exposition, render


def registry() -> Metrics:
    metrics = Metrics()
    metrics.counter("kalda_sent", "Sent.", listener="A").value += 3
    metrics.table(
        lambda: [((), (7, 1)), ((("topic", 'a"b\\c\nd'),), (2, None))],
        Column("kalda_in", "counter", "Bytes."),
        Column("kalda_size", "gauge", "Size."),
    )
    metrics.counter_function("kalda_in", "Bytes.", lambda: 9, topic="of a function")
    RequestMetrics(metrics, "Fetch").observe_wait(1.0, 1.002, 1.5)
    RequestMetrics(metrics, "Never")
    return metrics


def test_both_formats_say_the_same() -> None:
    text = parse_text(render(registry()).decode())
    openmetrics = parse_openmetrics(  # type: ignore[no-untyped-call]  # the library has no hints there
        render(registry(), is_openmetrics=True).decode()
    )
    found, expected = (
        {
            (each.name, *sorted(each.labels.items()), each.value)
            for family in families
            for each in family.samples
        }
        for families in (text, openmetrics)
    )
    assert expected == found
    assert ("kalda_in_total", ("topic", 'a"b\\c\nd'), 2.0) in found
    assert ("kalda_in_total", 7.0) in found
    assert ("kalda_size", 1.0) in found


def test_lines_of_a_metric_stand_together() -> None:
    """A metric may have instruments and rows of several tables; Prometheus refuses two groups of one name."""
    lines = render(registry()).decode().splitlines()
    names = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
    starts = [second for first, second in pairwise(names) if first != second]
    assert len(starts) == len(set(starts))


def test_what_has_no_value_is_left_out() -> None:
    metrics = Metrics()
    metrics.table(lambda: [((), (None,))], Column("kalda_unknown", "gauge", "Unknown."))
    metrics.table(list, Column("kalda_rows", "gauge", "None."))
    metrics.histogram("kalda_ms", "Not observed.")
    RequestMetrics(metrics, "Produce")
    assert b"" == render(metrics)
    assert b"# EOF\n" == render(metrics, is_openmetrics=True)


def test_large_tables_come_in_pieces() -> None:
    """The event loop does other work between two pieces."""
    metrics = Metrics()
    metrics.table(
        lambda: (((("partition", str(number)),), (number,)) for number in range(5000)),
        Column("kalda_size", "gauge", "Size."),
    )
    pieces = list(exposition(metrics))
    assert len(pieces) > 100
    assert 5002 == b"".join(pieces).count(b"\n")
    assert max(map(len, pieces)) < 300_000


def test_openmetrics_is_chosen_by_weight() -> None:
    prometheus = (
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    )
    assert prefers_openmetrics(prometheus)
    for accept in (
        "",
        "*/*",
        "text/plain",
        "application/openmetrics-text;q=0.3,text/plain;q=0.5",
        "application/openmetrics-text;version=2.0.0",
        "application/openmetrics-text;q=junk",
        ";;,=;q",
    ):
        assert not prefers_openmetrics(accept), accept


def test_gzip_is_used_where_it_is_accepted() -> None:
    for accepted in ("gzip", "deflate, gzip;q=0.5", "*", "GZIP"):
        assert accepts_gzip(accepted), accepted
    for refused in ("", "identity", "gzip;q=0", "br"):
        assert not accepts_gzip(refused), refused
