"""Reads a pipeline file: YAML to the values of `kalda.pipelines.spec.model`, or all of its faults at once.

It connects to nothing. The pipelines of the file are read by `kalda.pipelines.spec.pipeline_parser`.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeAlias

from kalda.pipelines.spec import sections, values
from kalda.pipelines.spec.errors import FaultList, PipelineFileError
from kalda.pipelines.spec.locations import Locations, refused_storage, to_uri
from kalda.pipelines.spec.model import (
    Cluster,
    PipelineFile,
    PipelineSpec,
    Place,
    SparkSettings,
    TableSpec,
    TopicSource,
)
from kalda.pipelines.spec.nodes import SectionReader, Source, Value, compose
from kalda.pipelines.spec.pipeline_parser import PipelineParser, read_defaults

FILE_BYTES_MAX: Final = 1 << 20
"""A pipeline takes some hundred bytes; a larger file is a wrong one."""

MAIN_CLUSTER: Final = "main"
"""The name under which the key `cluster` is known."""
_ADDRESS: Final = "bootstrap.servers"
_CLASSIC: Final = "classic"
_CONNECT: Final = ("spark.remote", "spark.api.mode")
"""Settings that ask for Spark Connect, unless they say `classic`."""
_NO_SETTINGS: Final[Mapping[str, str]] = {}

Check: TypeAlias = Callable[[PipelineFile, FaultList], None]


def read_pipeline_file(
    path: Path,
    *,
    settings: Mapping[str, str] = _NO_SETTINGS,
    variables: Mapping[str, str] | None = None,
    check: Check | None = None,
) -> PipelineFile:
    """Read a file.

    Args:
        path: the file.
        settings: win over those of the main cluster, by Kafka's names.
        variables: what ``${NAME}`` stands for; the environment if None.
        check: adds more faults. It gets the file also if there are faults already, and then with empty texts
            in the place of what is wrong.

    Raises:
        OSError: the file cannot be read.
        PipelineFileError: the file is wrong; the error has every fault.
    """
    return parse_pipeline_file(
        read_text(path),
        str(path),
        directory=path.resolve().parent,
        settings=settings,
        variables=os.environ if variables is None else variables,
        check=check,
    )


def read_text(path: Path) -> str:
    """Return the text of a file; raises as `read_pipeline_file`."""
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    start = Place(str(path), 1, 1)
    faults = FaultList()
    if len(content) > FILE_BYTES_MAX:
        faults.add(start, f"the file has more than {FILE_BYTES_MAX} bytes; is it a pipeline file?")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        faults.add(start, f"the file is not text in UTF-8: {error.reason} at byte {error.start}")
    faults.check()
    return text


def parse_pipeline_file(
    text: str,
    name: str,
    *,
    directory: Path,
    settings: Mapping[str, str] = _NO_SETTINGS,
    variables: Mapping[str, str],
    check: Check | None = None,
) -> PipelineFile:
    """Read the text of a file; relative paths in it begin at `directory`. `check` is as above.

    Raises:
        PipelineFileError: the file is wrong; the error has every fault.
    """
    faults = FaultList()
    source = Source(name, variables, faults)
    root = compose(source, text)
    faults.check()
    assert root is not None, "the absence of a root is a fault"
    reader = root.section(sections.FILE)
    storage = _storage(reader, directory)
    warehouse = reader.optional("warehouse", values.TEXT)
    locations = Locations(
        directory=directory,
        warehouse=f"{storage}/tables" if warehouse is None else to_uri(warehouse, directory),
        catalog=reader.texts("catalog"),
        registry=reader.texts("registry"),
        clusters=_clusters(reader, settings, variables),
    )
    result = PipelineFile(
        path=name,
        name=reader.required("name", values.NAME),
        storage=storage,
        warehouse=locations.warehouse,
        clusters=locations.clusters,
        spark=reader.build("spark", _spark) or SparkSettings(),
        pipelines=_pipelines(reader, locations),
    )
    if check is not None:
        check(result, faults)
    faults.check()
    return result


def _storage(reader: SectionReader, directory: Path) -> str:
    text = reader.required("storage", values.TEXT)
    storage = to_uri(text, directory)
    value = reader.get("storage")
    if value is not None and text and (takes := refused_storage(storage)) is not None:
        value.refuse(takes)
    return storage


def _clusters(
    reader: SectionReader, settings: Mapping[str, str], variables: Mapping[str, str]
) -> dict[str, Cluster]:
    properties = {**reader.texts("cluster"), **settings}
    given = reader.get("cluster")
    if given is not None and _ADDRESS not in properties:
        for name in get_close_matches(_ADDRESS, properties):
            given.entries()[name].fault(f"unknown key {name} in cluster. Did you mean {_ADDRESS}?")
    properties.setdefault(_ADDRESS, variables.get("KALDA_BOOTSTRAP_SERVER") or "127.0.0.1:9092")
    found = {MAIN_CLUSTER: Cluster(name=MAIN_CLUSTER, properties=properties)}
    more = reader.get("clusters")
    for name, value in more.entries().items() if more is not None else ():
        if name == MAIN_CLUSTER:
            value.fault(f"the name {MAIN_CLUSTER} is that of the key cluster; choose another one")
        if _ADDRESS not in value.entries():
            value.fault(f"cluster {name} has no {_ADDRESS}: it takes HOST:PORT,...")
        found[name] = Cluster(name=name, properties=value.texts())
    return found


def _spark(value: Value) -> SparkSettings:
    reader = value.section(sections.SPARK)
    return SparkSettings(
        master=reader.one("master", values.MASTER, "local[*]"), settings=_spark_settings(reader)
    )


def _spark_settings(reader: SectionReader) -> dict[str, str]:
    settings = reader.texts("settings")
    for name in _CONNECT:
        value = reader.get("settings")
        if value is not None and settings.get(name, _CLASSIC).lower() != _CLASSIC:
            value.fault(
                f"{name}={settings[name]} is not allowed: Spark Connect has no SparkContext, which pipelines "
                "need; set master instead"
            )
    return settings


def _pipelines(reader: SectionReader, locations: Locations) -> tuple[PipelineSpec, ...]:
    parser = PipelineParser(locations, read_defaults(reader.get("defaults"), locations))
    value = reader.get("pipelines")
    if value is None:
        return ()
    if not value.is_list:
        value.refuse("a list of pipelines")
        return ()
    found: dict[str, PipelineSpec] = {}
    for item in value.items("a list of pipelines"):
        spec = parser.parse(item)
        if spec.name in found and spec.name:
            item.fault(
                f"the name {spec.name} is taken by the pipeline in line {found[spec.name].place.line}; each "
                "pipeline has a checkpoint of its own"
            )
        elif spec.name:
            _check_beside(spec, found.values(), item)
        found.setdefault(spec.name, spec)
    return tuple(found.values())


def _check_beside(spec: PipelineSpec, others: Iterable[PipelineSpec], item: Value) -> None:
    """Add what two pipelines of a file cannot share."""
    for other in others:
        if _dead_letters(spec) is not None and _dead_letters(spec) == _dead_letters(other):
            item.fault(
                f"dlq: the topic {spec.dlq_topic} is that of {other.name} in line {other.place.line}: each "
                "would also process the replayed records of the other. Give each pipeline its own"
            )
        if (
            isinstance(spec.target, TableSpec)
            and isinstance(other.target, TableSpec)
            and spec.target.path == other.target.path
            and spec.target.format is not other.target.format
        ):
            item.fault(
                f"to: {other.name} in line {other.place.line} writes the table {spec.target.table} with "
                f"format {other.target.format.value}; this pipeline has {spec.target.format.value}"
            )


def _dead_letters(spec: PipelineSpec) -> tuple[str, str] | None:
    """Return the cluster and the topic of the dead letters."""
    if not isinstance(spec.source, TopicSource) or not spec.has_dead_letters:
        return None
    return spec.source.cluster, spec.dlq_topic


__all__ = ["MAIN_CLUSTER", "PipelineFileError", "parse_pipeline_file", "read_pipeline_file", "read_text"]
