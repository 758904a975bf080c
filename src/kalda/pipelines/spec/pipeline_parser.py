"""Reads the entries of `pipelines`.

What belongs together but stands in different keys is checked here, for example `keys` and the mode `upsert`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kalda.pipelines.spec import sections, values
from kalda.pipelines.spec.locations import Locations
from kalda.pipelines.spec.model import (
    Breaker,
    CopyDelivery,
    Delivery,
    Execution,
    Expectation,
    Keep,
    MirrorSpec,
    MirrorStart,
    MirrorSync,
    OnError,
    OnFail,
    PipelineKind,
    PipelineSpec,
    PythonStep,
    Rename,
    Restart,
    SqlStep,
    TableFormat,
    TableSource,
    TableSpec,
    TopicSource,
    TopicTarget,
    TransformStep,
    Trigger,
    ValueFormat,
)
from kalda.pipelines.spec.nodes import SectionReader, Value
from kalda.pipelines.spec.target_parser import OWN_TOPICS, read_table_target, read_topic_target
from kalda.pipelines.spec.values import suggestion

_STEP_TAKES: Final = "SQL, or `python: package.module:function`"

_BY_TOPIC: Final = "topic or pattern says what is read"
_BY_START: Final = "start says where a new pipeline begins"
_OPTIONS_OF_KEYS: Final = {
    "subscribe": _BY_TOPIC,
    "subscribepattern": _BY_TOPIC,
    "assign": _BY_TOPIC,
    "startingoffsets": _BY_START,
    "startingtimestamp": _BY_START,
    "startingoffsetsbytimestamp": _BY_START,
    "maxoffsetspertrigger": "max_records bounds a batch",
    "kafka.bootstrap.servers": "cluster has the address",
    "kafka.group.id": "each pipeline has a group of its own, which follows from its name",
}
"""Options of the source that keys of the file decide, in lower case, with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds for a pipeline that says nothing else."""

    trigger: Trigger = field(default_factory=Trigger)
    on_error: OnError = OnError.DLQ
    execution: Execution = Execution.AUTO
    restart: Restart = field(default_factory=Restart)
    breaker: Breaker = field(default_factory=Breaker)
    ledger: bool = True
    delivery: Delivery = Delivery.EXACTLY_ONCE
    value: ValueFormat = field(default_factory=ValueFormat)
    table_format: TableFormat = TableFormat.DELTA


def read_defaults(value: Value | None, locations: Locations) -> Defaults:
    """Read the key `defaults`."""
    built_in = Defaults()
    if value is None:
        return built_in
    reader = value.section(sections.DEFAULTS)
    return replace(
        _shared(reader, built_in),
        delivery=reader.one("delivery", sections.DELIVERY, built_in.delivery),
        value=read_format(reader.get("value"), locations) or built_in.value,
        table_format=reader.one("table_format", sections.TABLE_FORMAT, built_in.table_format),
    )


def read_format(value: Value | None, locations: Locations) -> ValueFormat | None:
    """Read the format of values or keys: a name, or a mapping."""
    if value is None:
        return None
    if value.is_scalar:
        return _registered(ValueFormat(name=value.one(values.TEXT), place=value.place), locations)
    reader = value.section(sections.FORMAT)
    schema = reader.optional("schema", values.TEXT)
    file = reader.optional("schema_file", values.TEXT)
    if file is not None and schema is not None:
        value.fault("a format takes schema or schema_file, not both")
    name = reader.required("format", values.TEXT)
    if file is not None:
        try:
            schema = (locations.directory / file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            (reader.get("schema_file") or value).fault(f"schema_file: {file} cannot be read: {reason}")
            name = ""  # Without its schema the format cannot be checked further.
    made = ValueFormat(
        name=name,
        schema=schema,
        options=reader.texts("options"),
        place=value.place,
    )
    return _registered(made, locations)


def _registered(made: ValueFormat, locations: Locations) -> ValueFormat:
    """Add the options of the file's registry to a format that uses one."""
    if not made.name.endswith("-sr"):
        return made
    registry = {f"registry.{name}": value for name, value in locations.registry.items()}
    return replace(made, options={**registry, **made.options})


def _shared(reader: SectionReader, defaults: Defaults) -> Defaults:
    restart, breaker = reader.get("restart"), reader.get("breaker")
    return replace(
        defaults,
        trigger=reader.one("trigger", values.TRIGGER, defaults.trigger),
        on_error=reader.one("on_error", sections.ON_ERROR, defaults.on_error),
        execution=reader.one("execution", sections.EXECUTION, defaults.execution),
        restart=defaults.restart if restart is None else _restart(restart, defaults.restart),
        breaker=defaults.breaker if breaker is None else _breaker(breaker, defaults.breaker),
        ledger=reader.one("ledger", values.BOOLEAN, defaults.ledger),
    )


def _restart(value: Value, defaults: Restart) -> Restart:
    reader = value.section(sections.RESTART)
    return Restart(
        tries=reader.one("tries", values.COUNT, defaults.tries),
        backoff_ms=reader.one("backoff", values.DURATION, defaults.backoff_ms),
        backoff_max_ms=reader.one("backoff_max", values.DURATION, defaults.backoff_max_ms),
    )


def _breaker(value: Value, defaults: Breaker) -> Breaker:
    reader = value.section(sections.BREAKER)
    return Breaker(
        bad_max=reader.one("bad_max", values.SHARE, defaults.bad_max),
        records_min=reader.one("records_min", values.COUNT, defaults.records_min),
    )


class PipelineParser:
    """Reads one entry after the other."""

    def __init__(self, locations: Locations, defaults: Defaults) -> None:
        self._locations: Final = locations
        self._defaults: Final = defaults

    def parse(self, value: Value) -> PipelineSpec:
        """Read an entry; after a fault the result is of no use."""
        reader = value.section(sections.PIPELINE)
        name = reader.required("name", values.NAME)
        shared = _shared(reader, self._defaults)
        mirror = reader.build("mirror", self._mirror)
        if mirror is not None:
            reader.forbid(
                ("from", "to", "transform", "views", "expect"), "a mirror copies records as they are"
            )
        elif value.is_mapping:
            for key in ("from", "to"):
                if key not in reader:
                    value.fault(f"a pipeline has no {key}: it takes from and to, or mirror")
        source = None if mirror is not None else reader.build("from", self._source)
        target = None if mirror is not None else reader.build("to", self._target)
        if isinstance(source, TableSource) and isinstance(target, TableSpec):
            value.fault("a pipeline reads a topic or writes one; Spark itself copies a table to a table")
        if isinstance(source, TableSource) and isinstance(target, TopicTarget):
            to = reader.get("to")
            given = None if to is None else to.entries().get("delivery")
            if given is not None and target.delivery is not Delivery.EXACTLY_ONCE:
                given.refuse(sections.COPY_DELIVERY.takes)
        spec = PipelineSpec(
            name=name,
            kind=_kind(source, target),
            source=source,
            target=target,
            mirror=mirror,
            transform=reader.build("transform", _steps) or (),
            views=reader.build("views", self._views) or {},
            expect=reader.build("expect", _expectations) or (),
            on_error=shared.on_error,
            dlq_topic=reader.one("dlq", values.DLQ_TOPIC, f"{name}.dlq"),
            trigger=shared.trigger,
            execution=shared.execution,
            restart=shared.restart,
            breaker=shared.breaker,
            ledger=shared.ledger,
            place=value.place,
        )
        if isinstance(source, TopicSource):
            for topic in sorted(spec.written_topics.intersection(source.topics)):
                value.fault(f"from names the topic {topic}, which the pipeline writes: it would never end")
            if spec.has_dead_letters:
                _check_dead_letters(spec, source, reader.get("dlq") or value)
        return spec

    def _source(self, value: Value) -> TopicSource | TableSource | None:
        if not value.is_mapping:
            value.refuse("a mapping with topic, pattern or table")
            return None
        if "table" in value.entries():
            source = self._table_source(value)
            if source.format is TableFormat.PARQUET:
                (value.entries().get("format") or value).fault(
                    "format: parquet is not allowed in from: plain files do not show what changed; it takes "
                    "delta or iceberg"
                )
            return source
        reader = value.section(sections.FROM_TOPIC)
        topics = reader.many("topic", values.TOPIC)
        pattern = reader.optional("pattern", values.PATTERN)
        if bool(topics) == (pattern is not None):
            value.fault("from takes one of topic, pattern and table")
        format_ = read_format(reader.get("value"), self._locations) or self._defaults.value
        keep = reader.many("keep", sections.KEEP)
        if format_.name == "raw" and not keep:
            keep = tuple(Keep)
        return TopicSource(
            topics=topics,
            pattern=pattern,
            cluster=self._cluster(reader, "cluster"),
            start=reader.one("start", values.START, "earliest"),
            value=format_,
            keep=tuple(dict.fromkeys(keep)),
            records_per_batch_max=reader.optional("max_records", values.COUNT),
            options=_source_options(reader),
            place=value.place,
        )

    def _table_source(self, value: Value) -> TableSource:
        reader = value.section(sections.FROM_TABLE)
        table = reader.required("table", values.TEXT)
        return TableSource(
            table=table,
            path=self._path(reader, table),
            format=reader.one("format", sections.TABLE_FORMAT, self._defaults.table_format),
            changes=reader.one("changes", values.BOOLEAN, False),
            catalog={**self._locations.catalog, **reader.texts("catalog")},
            options=reader.texts("options"),
            place=value.place,
        )

    def _target(self, value: Value) -> TableSpec | TopicTarget | None:
        if not value.is_mapping:
            value.refuse("a mapping with table or topic")
            return None
        names = value.entries()
        if ("table" in names) == ("topic" in names):
            value.fault(f"to takes one of table and topic; it has {', '.join(names) or 'neither'}")
            return None
        if "topic" in names:
            reader = value.section(sections.TO_TOPIC)
            return read_topic_target(
                reader,
                cluster=self._cluster(reader, "cluster"),
                format_=read_format(reader.get("value"), self._locations),
                delivery=self._defaults.delivery,
            )
        return read_table_target(value, self._locations, self._defaults.table_format)

    def _views(self, value: Value) -> Mapping[str, TableSource]:
        found = {}
        for name, view in value.entries().items():
            if not name.isidentifier() or name == "input":
                view.fault(
                    f"view {name} is not allowed: it takes a name of letters, digits and '_', not input"
                )
            found[name] = self._table_source(view)
        return found

    def _mirror(self, value: Value) -> MirrorSpec:
        reader = value.section(sections.MIRROR)
        source, target = self._cluster(reader, "source"), self._cluster(reader, "target")
        rename = reader.one("rename", sections.RENAME, Rename.IDENTITY)
        if source == target and rename is Rename.IDENTITY and "source" in reader and "target" in reader:
            value.fault(f"a mirror from {source} to {source} would copy each topic to itself")
        reader.one("delivery", sections.COPY_DELIVERY, CopyDelivery.EXACTLY_ONCE)
        return MirrorSpec(
            source=source,
            target=target,
            topics=reader.required("topics", values.PATTERN),
            rename=rename,
            sync=reader.many("sync", sections.SYNC) or (MirrorSync.CONFIGS,),
            start=reader.one("start", sections.MIRROR_START, MirrorStart.EARLIEST),
            place=value.place,
        )

    def _cluster(self, reader: SectionReader, key: str) -> str:
        name = reader.one(key, values.TEXT, "main")
        value = reader.get(key)
        if value is not None and name and name not in self._locations.clusters:
            known = list(self._locations.clusters)
            value.fault(
                f"{key}: there is no cluster {name}.{suggestion(name, known)} It takes {', '.join(known)}"
            )
        return name

    def _path(self, reader: SectionReader, table: str) -> str:
        path = self._locations.table(table)
        if path is None and table:
            value = reader.get("table") or reader.value
            value.refuse("a name such as lake.orders, or a URI")
        return path or ""


def _source_options(reader: SectionReader) -> Mapping[str, str]:
    value = reader.get("options")
    for name, option in value.entries().items() if value is not None else ():
        key = _OPTIONS_OF_KEYS.get(name.lower())
        if key is not None:
            option.fault(f"options: {name} is not allowed here; {key}")
    return reader.texts("options")


def _check_dead_letters(spec: PipelineSpec, source: TopicSource, value: Value) -> None:
    own = spec.dlq_topic, spec.retry_topic
    target = spec.target
    if isinstance(target, TopicTarget) and target.cluster == source.cluster and target.topic in own:
        value.fault(f"dlq: dead letters go to {own[0]} and {own[1]}; to cannot be {target.topic} as well")
    if spec.dlq_topic.startswith(OWN_TOPICS):
        value.fault(f"dlq: {spec.dlq_topic} is not allowed: topics named {OWN_TOPICS}* are Kalda's own")


def _steps(value: Value) -> tuple[TransformStep, ...]:
    return tuple(step for item in value.items(_STEP_TAKES) if (step := _step(item)) is not None)


def _step(item: Value) -> TransformStep | None:
    if item.is_scalar:
        text = item.one(values.TEXT)
        function = text.removeprefix("python:").strip() if text.startswith("python:") else None
        if function is None:
            return SqlStep(text=text, place=item.place)
        try:
            return PythonStep(function=values.FUNCTION.parse(function), place=item.place)
        except values.NotAllowedError as error:
            item.refuse(str(error))
            return None
    entries = item.entries()
    if entries.keys() == {"python"}:
        return PythonStep(function=entries["python"].one(values.FUNCTION), place=item.place)
    if entries.keys() == {"sql"}:
        return SqlStep(text=entries["sql"].one(values.TEXT), place=item.place)
    item.refuse(_STEP_TAKES)
    return None


def _expectations(value: Value) -> tuple[Expectation, ...]:
    return tuple(_expectation(name, each) for name, each in value.entries().items())


def _expectation(name: str, value: Value) -> Expectation:
    if value.is_scalar:
        return Expectation(name=name, check=value.one(values.TEXT), place=value.place)
    reader = value.section(sections.EXPECTATION)
    return Expectation(
        name=name,
        check=reader.required("check", values.TEXT),
        on_fail=reader.one("on_fail", sections.ON_FAIL, OnFail.FAIL),
        place=value.place,
    )


def _kind(source: TopicSource | TableSource | None, target: TableSpec | TopicTarget | None) -> PipelineKind:
    if isinstance(source, TableSource):
        return PipelineKind.TABLE_TO_TOPIC
    if isinstance(target, TopicTarget):
        return PipelineKind.TOPIC_TO_TOPIC
    return PipelineKind.MIRROR if source is None else PipelineKind.TOPIC_TO_TABLE
