"""Pipeline files become values, or a list of faults with their places."""

from pathlib import Path

import pytest

from kalda.pipelines.spec.errors import PipelineFileError
from kalda.pipelines.spec.model import (
    Compact,
    Compression,
    Delivery,
    Evolve,
    Expectation,
    Keep,
    Late,
    MirrorSync,
    OnError,
    OnFail,
    PipelineFile,
    PipelineKind,
    Place,
    PythonStep,
    SqlStep,
    TableFormat,
    TableSource,
    TableSpec,
    TopicSource,
    TopicTarget,
    Trigger,
    TriggerKind,
    WriteMode,
)
from kalda.pipelines.spec.parser import FILE_BYTES_MAX, parse_pipeline_file, read_pipeline_file

DIRECTORY = Path("/srv/pipelines")
FULL = """\
name: orders
storage: file:///var/lib/kalda/orders
cluster: {bootstrap.servers: "${BROKERS:-127.0.0.1:9092}", sasl.jaas.config: "${PASSWORD}"}
clusters:
  b: {bootstrap.servers: b:9092}
registry: {url: http://127.0.0.1:8081}
defaults: {trigger: every 10m, delivery: exactly-once-batch, on_error: skip, breaker: {bad_max: 1%}}
spark: {master: "local[2]", settings: {spark.driver.memory: 1g}}
pipelines:
  - name: orders_bronze
    from: {topic: orders, start: earliest, value: {format: avro-sr, options: {registry.timeout.ms: 500}},
           keep: [key, headers, offset, timestamp], max_records: 50000}
    transform: ["select *, to_date(ts) dt", "where amount is not null", {python: pkg.mod:fn}]
    expect: {positive: {check: "amount > 0", on_fail: dlq}, known: "id is not null"}
    to: {table: lake.orders, format: delta, partition_by: [dt], mode: append,
         event_time: ts, late: {allow: 3d, after: late_table}, file_target: 64MB, max_latency: 60s,
         compression: lz4, schema: {evolve: widen}, compact: {every: 1h}}
    on_error: dlq
    trigger: 5s
  - {name: orders_now, from: {topic: orders_cdc, value: debezium-json}, to: {table: lake.orders_now,
     mode: upsert, keys: [id], order_by: lsn, deletes: "op='d'"}}
  - {name: alerts, from: {topic: [orders, returns]}, transform: "select key, value", to: {topic: alerts}}
  - {name: publish, from: {table: lake.dim, changes: true},
     to: {topic: dim, key: id, tombstones: true, cluster: b}}
  - {name: dr, mirror: {source: main, target: b, topics: "orders.*", rename: prefix,
     sync: [configs, groups]}}
"""


def parse(text: str, **variables: str) -> PipelineFile:
    return parse_pipeline_file(text, "p.yml", directory=DIRECTORY, variables=variables)


def faults(text: str, **variables: str) -> list[str]:
    with pytest.raises(PipelineFileError) as raised:
        parse(text, **variables)
    return str(raised.value).splitlines()


def minimal(pipeline: str) -> str:
    return f"name: n\nstorage: state\npipelines:\n  - {pipeline}\n"


def test_a_file_becomes_values() -> None:
    """The example of the design, with every kind of pipeline."""
    file = parse(FULL, PASSWORD="secret")
    bronze, now, alerts, publish, mirror = file.pipelines

    assert {"bootstrap.servers": "127.0.0.1:9092", "sasl.jaas.config": "secret"} == file.cluster(
        "main"
    ).properties
    assert ("file:///var/lib/kalda/orders", "file:///var/lib/kalda/orders/tables") == (
        file.storage,
        file.warehouse,
    )
    assert "file:///var/lib/kalda/orders/checkpoints/alerts" == file.checkpoint("alerts")
    assert ("local[2]", {"spark.driver.memory": "1g"}) == (file.spark.master, file.spark.settings)

    assert PipelineKind.TOPIC_TO_TABLE is bronze.kind
    assert isinstance(bronze.source, TopicSource)
    assert (("orders",), "earliest", 50_000) == (
        bronze.source.topics,
        bronze.source.start,
        bronze.source.records_per_batch_max,
    )
    assert {
        "registry.url": "http://127.0.0.1:8081",
        "registry.timeout.ms": "500",
    } == bronze.source.value.options
    assert (Keep.KEY, Keep.HEADERS, Keep.OFFSET, Keep.TIMESTAMP) == bronze.source.keep
    place = Place("p.yml", 13, 17)
    assert SqlStep(text="select *, to_date(ts) dt", place=place) == bronze.transform[0]
    assert isinstance(bronze.transform[2], PythonStep)
    assert "pkg.mod:fn" == bronze.transform[2].function
    assert [("positive", OnFail.DLQ), ("known", OnFail.FAIL)] == [(e.name, e.on_fail) for e in bronze.expect]
    assert isinstance(bronze.expect[0], Expectation)
    target = bronze.target
    assert isinstance(target, TableSpec)
    assert (TableFormat.DELTA, ("dt",), Evolve.WIDEN) == (target.format, target.partition_by, target.evolve)
    assert "file:///var/lib/kalda/orders/tables/lake/orders" == target.path
    late_path = "file:///var/lib/kalda/orders/tables/late_table"
    assert Late(allow_ms=259_200_000, after="late_table", path=late_path) == target.late
    assert (64 << 20, 60_000, Compact(every_ms=3_600_000)) == (
        target.file_target_bytes,
        target.max_latency_ms,
        target.compact,
    )
    assert target.compression is Compression.LZ4
    assert (OnError.DLQ, "orders_bronze.dlq") == (bronze.on_error, bronze.dlq_topic)
    assert Trigger(kind=TriggerKind.INTERVAL, interval_ms=5_000) == bronze.trigger

    assert isinstance(now.target, TableSpec)
    assert (WriteMode.UPSERT, ("id",), "lsn", "op='d'") == (
        now.target.mode,
        now.target.keys,
        now.target.order_by,
        now.target.deletes,
    )
    assert Trigger(kind=TriggerKind.EVERY, interval_ms=600_000) == now.trigger
    assert (OnError.SKIP, 0.01) == (now.on_error, now.breaker.bad_max)

    assert PipelineKind.TOPIC_TO_TOPIC is alerts.kind
    assert isinstance(alerts.source, TopicSource)
    assert (("orders", "returns"), tuple(Keep)) == (alerts.source.topics, alerts.source.keep)
    assert isinstance(alerts.target, TopicTarget)
    assert Delivery.EXACTLY_ONCE_BATCH is alerts.target.delivery

    assert PipelineKind.TABLE_TO_TOPIC is publish.kind
    assert isinstance(publish.source, TableSource)
    assert publish.source.changes
    assert isinstance(publish.target, TopicTarget)
    assert (("id",), True, "b") == (publish.target.key, publish.target.tombstones, publish.target.cluster)

    assert PipelineKind.MIRROR is mirror.kind
    assert mirror.mirror is not None
    assert tuple(MirrorSync) == mirror.mirror.sync


def test_all_faults_are_reported_in_the_order_of_the_file() -> None:
    """A user corrects a file once, not once for each fault."""
    text = """\
name: orders
storag: file:///x
pipelines:
  - name: a b
    from: {topic: orders, kep: [key, hedders]}
    trigger: often
    to: {table: lake.orders, mode: upsert, file_target: big}
  - {name: c, to: {topic: t, table: u}}
"""
    found = faults(text)
    expected = [
        "p.yml:1:1: the file has no storage: it takes a URI or a directory",
        "p.yml:2:9: unknown key storag in the file. Did you mean storage? It takes name, storage, ",
        "p.yml:4:11: name: a b is not allowed: it takes letters, digits, '.', '_' and '-', up to 200",
        "p.yml:5:32: unknown key kep in from with a topic. Did you mean keep? It takes topic, pattern, ",
        "p.yml:6:14: trigger: often is not allowed: it takes an interval such as 5s, availableNow, or ",
        "p.yml:7:9: mode: upsert needs keys: the columns that identify a row",
        "p.yml:7:57: file_target: big is not allowed: it takes a size such as 64MB or 1GB",
        "p.yml:8:5: a pipeline has no from: it takes from and to, or mirror",
        "p.yml:8:19: to takes one of table and topic",
    ]
    assert expected == [line[: len(start)] for line, start in zip(found, expected, strict=True)]


@pytest.mark.parametrize(
    ("pipeline", "fault"),
    [
        (
            "{name: a, from: {topic: t, keep: [hedders]}, to: {table: u}}",
            "keep[0]: hedders is not allowed: it takes key, headers, topic, partition, offset or timestamp.",
        ),
        (
            "{name: a, from: {topic: t, pattern: u}, to: {table: u}}",
            "from takes one of topic, pattern and table",
        ),
        ("{name: a, from: {start: latest}, to: {table: u}}", "from takes one of topic, pattern and table"),
        (f"{{name: a, from: {{topic: t}}, dlq: {244 * 'd'}, to: {{table: u}}}}", "up to 243 characters"),
        ("{name: .., from: {topic: t}, to: {table: u}}", "name: .. is not allowed"),
        ("{name: a, from: {topic: t}, to: {topic: t}}", "from names the topic t, which the pipeline writes"),
        (
            "{name: a, from: {topic: t}, dlq: t, to: {table: u}}",
            "from names the topic t, which the pipeline writes",
        ),
        ("{name: a, from: {topic: t, start: soon}, to: {table: u}}", "start: soon is not allowed"),
        ("{name: a, from: {pattern: '('}, to: {table: u}}", "pattern: ( is not allowed"),
        ("{name: a, from: {topic: t, cluster: x}, to: {table: u}}", "there is no cluster x. It takes main"),
        (
            "{name: a, from: {topic: t}, to: {table: u, keys: [id]}}",
            "keys is not allowed here: it belongs to",
        ),
        (
            "{name: a, from: {topic: t}, to: {table: u, mode: upsert, keys: id, format: parquet}}",
            "format: parquet is not allowed with mode: upsert",
        ),
        (
            "{name: a, from: {table: u, format: parquet}, to: {topic: t}}",
            "format: parquet is not allowed in from: plain files do not show what changed; it takes delta or",
        ),
        (
            "{name: a, from: {topic: t}, to: {table: u, late: {allow: 1h, after: drop}}}",
            "late needs event_time",
        ),
        (
            "{name: a, from: {topic: t}, to: {table: 'u v'}}",
            "table: u v is not allowed: it takes a name such as",
        ),
        ("{name: a, from: {table: t}, to: {table: u}}", "reads a topic or writes one"),
        (
            "{name: a, from: {topic: t}, mirror: {source: x, target: y, topics: z}}",
            "from is not allowed here",
        ),
        ("{name: a, mirror: {source: main, target: main, topics: z}}", "would copy each topic to itself"),
        (
            "{name: a, mirror: {source: main, target: main, topics: z, start: -10m}}",
            "start: -10m is not allowed: it takes earliest or latest",
        ),
        (
            "{name: a, from: {topic: t}, to: {table: u}, transform: [{python: fn}]}",
            "python: fn is not allowed",
        ),
        ("{name: a, from: {topic: t}, to: {table: u}, transform: []}", "transform is empty"),
        (
            "{name: a, from: {topic: t}, to: {table: u}, breaker: {bad_max: 200%}}",
            "bad_max: 200% is not allowed",
        ),
        ("{name: a, from: [t], to: {table: u}}", "from: a list is not allowed here"),
        (
            "{name: a, name: b, from: {topic: t}, to: {table: u}}",
            "name occurs twice in pipelines[0]; keep one",
        ),
        (
            "{name: a, from: {topic: t, value: {format: json, schema: x, schema_file: y}}, to: {table: u}}",
            "a format takes schema or schema_file, not both",
        ),
        ("{name: a, from: {topic: '${TOPIC}'}, to: {table: u}}", "the environment variable TOPIC is not set"),
        ("{name: a, from: {topic: '${a b}'}, to: {table: u}}", "${a b} is not allowed: it takes ${NAME}"),
        ("{name: a, from: {topic: '${file:/none}'}, to: {table: u}}", "${file:/none} cannot be read"),
        (
            '{name: a, from: {topic: t, value: {format: json, schema_file: "a\\0b"}}, to: {table: u}}',
            "schema_file: a\0b is not allowed: it takes text",
        ),
        ('{name: a, from: {topic: "${file:a\\0b}"}, to: {table: u}}', "cannot be read: embedded null byte"),
        ("{name: a, from: {topic: ''}, to: {table: u}}", "topic: it is empty: it takes the name of a topic"),
        (
            "{name: a, from: t, to: {table: u}}",
            "from: t is not allowed: it takes a mapping with topic, pattern",
        ),
        (
            "{name: a, from: {topic: t}, to: u}",
            "to: u is not allowed: it takes a mapping with table or topic",
        ),
        ("{name: a, from: {topic: t}, to: {tabel: u}}", "to takes one of table and topic; it has tabel"),
        (
            "{name: a, from: {topic: t}, to: {table: u, file_target: 0.1B}}",
            "file_target: 0.1B is not allowed",
        ),
        (
            "{name: a, from: {topic: t}, dlq: u, to: {topic: u}}",
            "dlq: dead letters go to u and u.retry; to cannot",
        ),
        ("{name: a, from: {topic: t}, dlq: u, to: {topic: u.retry}}", "to cannot be u.retry as well"),
        (
            "{name: a, from: {topic: t}, dlq: __kalda_audit, to: {table: u}}",
            "dlq: __kalda_audit is not allowed",
        ),
        ("{name: a, from: {topic: t}, to: {topic: __kalda_audit}}", "topic: __kalda_audit is not allowed"),
        (
            "{name: a, from: {topic: t}, to: {table: u, event_time: x, late: {allow: 1h, after: u}}}",
            "late: u is the table itself; write after: keep",
        ),
    ],
)
def test_a_fault_names_the_key_the_value_and_what_is_allowed(pipeline: str, fault: str) -> None:
    """Errors are for people who have no source code at hand."""
    found = faults(minimal(pipeline))
    assert any(fault in each for each in found), found
    assert all(each.startswith("p.yml:4:") for each in found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "p.yml:1:1: the file is empty"),
        (
            "a: [",
            "p.yml:1:5: this is not YAML: while parsing a flow node in line 1: expected the node content",
        ),
        (
            "a: x\nb: 'y",
            "p.yml:2:6: this is not YAML: while scanning a quoted scalar in line 2: found unexpected",
        ),
        (
            "a: x\n---\nb: y\n",
            "p.yml:2:1: this is not YAML: expected a single document in the stream in line 1: ",
        ),
        ("a: x\nb: \x07", "p.yml:2:4: this is not YAML: the character U+0007 is not allowed in text"),
        (f"a: {5_000 * '['}", "p.yml:1:1: this is nested too deeply for a pipeline file"),
        (
            "- a",
            "p.yml:1:1: the file: a list is not allowed here: it takes a mapping with the keys name, storage",
        ),
    ],
)
def test_other_files_are_refused(text: str, fault: str) -> None:
    """A path to a wrong file must not end in a traceback."""
    assert faults(text)[0].startswith(fault)


def test_two_pipelines_with_one_name_are_refused() -> None:
    """They would share a checkpoint."""
    text = (
        minimal("{name: a, from: {topic: t}, to: {table: u}}")
        + "  - {name: a, from: {topic: t}, to: {topic: u}}"
    )
    assert [
        "p.yml:5:5: the name a is taken by the pipeline in line 4; each pipeline has a checkpoint of its own"
    ] == (faults(text))


def test_two_pipelines_do_not_share_their_dead_letters() -> None:
    """Each reads what is replayed, so that a replayed record would be processed twice."""
    text = minimal("{name: a, from: {topic: t}, dlq: d, to: {table: u}}")
    (fault,) = faults(text + "  - {name: b, from: {topic: x}, dlq: d, to: {table: v}}")
    assert fault.startswith("p.yml:5:5: dlq: the topic d is that of a in line 4: each would also process")
    assert 2 == len(
        parse(text + "  - {name: b, from: {topic: x}, dlq: d, on_error: skip, to: {table: v}}").pipelines
    )


def test_two_pipelines_write_a_table_in_one_format() -> None:
    """Otherwise its directory holds two tables of the same name, each without the rows of the other."""
    text = minimal("{name: a, from: {topic: t}, to: {table: u}}")
    (fault,) = faults(text + "  - {name: b, from: {topic: x}, to: {table: u, format: parquet}}")
    expected = "p.yml:5:5: to: a in line 4 writes the table u with format delta; this pipeline has parquet"
    assert expected == fault
    assert 2 == len(parse(text + "  - {name: b, from: {topic: x}, to: {table: u}}").pipelines)


@pytest.mark.parametrize(
    ("top", "fault"),
    [
        (
            "storage: foo://x/y",
            "storage: foo://x/y is not allowed: it takes a directory, or a URI with file, ",
        ),
        (
            "storage: /dev/null/x",
            "storage: /dev/null/x is not allowed: it takes a directory; /dev/null is a ",
        ),
        (
            "storage: s\ncluster: {bootstrap.server: b:1}",
            "unknown key bootstrap.server in cluster. Did you mean ",
        ),
        ("storage: s\nspark: {master: 'sc://host'}", "Spark Connect (sc://) has no SparkContext"),
        (
            "storage: s\nspark: {settings: {spark.remote: 'sc://host'}}",
            "spark.remote=sc://host is not allowed",
        ),
        ("storage: s\nspark: {settings: {spark.api.mode: connect}}", "spark.api.mode=connect is not allowed"),
    ],
)
def test_the_top_of_a_file_is_checked(top: str, fault: str) -> None:
    """A misspelled address must not lead to the default cluster, nor a wrong place to a traceback."""
    found = faults(f"name: n\n{top}\npipelines: [{{name: a, from: {{topic: t}}, to: {{table: u}}}}]\n")
    assert [True] == [fault in each for each in found], found


@pytest.mark.parametrize("pipelines", ["", "{a: {from: {topic: t}, to: {table: u}}}", "orders"])
def test_pipelines_are_a_list(pipelines: str) -> None:
    """One fault says so, instead of one for each key that an entry lacks."""
    (fault,) = faults(f"name: n\nstorage: s\npipelines: {pipelines}\n")
    assert fault.endswith("it takes a list of pipelines")


def test_merge_keys_of_yaml_are_explained() -> None:
    """They are common in files of other tools."""
    found = faults(minimal("{name: a, <<: {from: {topic: t}}, to: {table: u}}"))
    assert any("Merging of mappings is not supported: use defaults" in each for each in found)


def test_variables_and_secrets_are_replaced(tmp_path: Path) -> None:
    """A password belongs into the environment or a file, never into the pipeline file."""
    secret = tmp_path / "secret"
    secret.write_text("p4ss\n")
    text = minimal(
        "{name: a, from: {topic: '${T}'}, transform: ['where x = \"$${T}\"'], to: {topic: '${U:-u}'}}"
    )
    file = parse(text + f"cluster: {{sasl.password: '${{file:{secret}}}'}}\n", T="orders")
    (spec,) = file.pipelines
    assert isinstance(spec.source, TopicSource)
    assert isinstance(spec.target, TopicTarget)
    assert (("orders",), "u", "p4ss") == (
        spec.source.topics,
        spec.target.topic,
        file.cluster("main").properties["sasl.password"],
    )
    assert [SqlStep(text='where x = "${T}"', place=Place("p.yml", 4, 50))] == list(spec.transform)


def test_a_secret_never_shows_in_a_fault() -> None:
    """Faults end up in logs."""
    (fault,) = faults(minimal("{name: a, from: {topic: '${PASSWORD}'}, to: {table: u}}"), PASSWORD="p 4 s s")
    assert "${PASSWORD} is not allowed" in fault
    assert "p 4 s s" not in fault


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """A file works from every working directory."""
    (tmp_path / "a.avsc").write_text('"string"')
    path = tmp_path / "p.yml"
    path.write_text(
        minimal("{name: a, from: {topic: t, value: {format: avro, schema_file: a.avsc}}, to: {table: x/y}}")
    )
    file = read_pipeline_file(path, settings={"bootstrap.servers": "b:1"})
    (spec,) = file.pipelines
    assert isinstance(spec.source, TopicSource)
    assert isinstance(spec.target, TableSpec)
    assert f"file://{tmp_path}/state" == file.storage
    assert ('"string"', f"file://{tmp_path}/x/y") == (spec.source.value.schema, spec.target.path)
    assert "b:1" == file.cluster("main").bootstrap_servers


@pytest.mark.parametrize("content", [b"\xff", b"#" * (FILE_BYTES_MAX + 1)])
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes) -> None:
    """For example a table's file instead of a pipeline's."""
    path = tmp_path / "p.yml"
    path.write_bytes(content)
    with pytest.raises(PipelineFileError, match=r"p\.yml:1:1: the file"):
        read_pipeline_file(path)


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("500ms", Trigger(interval_ms=500)),
        ("availableNow", Trigger(kind=TriggerKind.AVAILABLE_NOW)),
        ("every 1h", Trigger(kind=TriggerKind.EVERY, interval_ms=3_600_000)),
    ],
)
def test_triggers(text: str, trigger: Trigger) -> None:
    """The three forms of the design."""
    (spec,) = parse(minimal(f"{{name: a, from: {{topic: t}}, to: {{table: u}}, trigger: {text}}}")).pipelines
    assert trigger == spec.trigger


def test_the_usual_compression_is_that_of_the_format() -> None:
    """Iceberg's writers use zstd, those of Delta and plain Parquet snappy."""

    def compression_of(kind: str) -> Compression:
        text = f"pipelines: [{{name: a, from: {{topic: t}}, to: {{table: a, format: {kind}}}}}]"
        target = parse(f"name: n\nstorage: /tmp/n\n{text}\n").pipelines[0].target
        assert isinstance(target, TableSpec)
        return target.compression

    assert {"delta": "snappy", "parquet": "snappy", "iceberg": "zstd"} == {
        kind: compression_of(kind) for kind in ("delta", "parquet", "iceberg")
    }


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("subscribe", "other", "topic or pattern says what is read"),
        ("Assign", "{}", "topic or pattern says what is read"),
        ("startingOffsets", "latest", "start says where a new pipeline begins"),
        ("maxOffsetsPerTrigger", "5", "max_records bounds a batch"),
        ("kafka.bootstrap.servers", "b:1", "cluster has the address"),
        ("kafka.group.id", "g", "each pipeline has a group of its own"),
    ],
)
def test_options_of_the_source_do_not_override_keys_of_the_file(name: str, value: str, reason: str) -> None:
    """Spark takes the names in any case, so that one of two values would win in silence."""
    text = minimal(f"{{name: a, from: {{topic: t, options: {{{name}: {value!r}}}}}, to: {{table: x}}}}")
    (fault,) = faults(text)
    assert f"options: {name} is not allowed here; {reason}" in fault
    assert fault.startswith("p.yml:4:")


def test_delivery_of_a_copy_is_exactly_once_or_refused() -> None:
    for pipeline in (
        "{name: a, mirror: {source: c, target: main, topics: t, delivery: at-least-once}}",
        "{name: a, from: {table: x}, to: {topic: t, delivery: exactly-once-batch}}",
    ):
        text = f"clusters: {{c: {{bootstrap.servers: 'c:1'}}}}\n{minimal(pipeline)}"
        (fault,) = faults(text)
        assert "delivery" in fault
        assert "it takes exactly-once" in fault
    parse(minimal("{name: a, from: {table: x}, to: {topic: t, delivery: exactly-once}}"))


def test_settings_of_the_command_line_win_over_those_of_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(
        "cluster: {bootstrap.servers: 'a:1', client.id: c}\n"
        + minimal("{name: a, from: {topic: t}, to: {table: x}}")
    )
    file = read_pipeline_file(path, settings={"client.id": "d", "request.timeout.ms": "5000"})
    expected = {"bootstrap.servers": "a:1", "client.id": "d", "request.timeout.ms": "5000"}
    assert expected == file.cluster("main").properties
