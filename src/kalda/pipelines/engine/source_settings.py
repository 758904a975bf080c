"""Turns what a pipeline reads into options of the data source `kalda`.

One place decides them, because the driver, the executors, `validate` and `lag` must read the same topics in
the same way. Readers see committed transactions only, unless the file sets ``kafka.isolation.level``.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from kalda.pipelines.spec.model import Cluster, PipelineSpec, TopicSource
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.options import parse_stream_options

ANSWER_MS_MAX: Final = "5000"
"""How long a cluster may take to answer: a person waits for the result, or the other pipelines do."""
_KAFKA: Final = "kafka."
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T.*")


def quick_discovery(options: Mapping[str, str], answer_ms_max: str = ANSWER_MS_MAX) -> Discovery:
    """Return look-ups with a pipeline's options, whose time-out is `answer_ms_max` unless they have one."""
    bounded = {"kafka.default.api.timeout.ms": answer_ms_max, **options}
    return Discovery(parse_stream_options(bounded), is_patient=False)


def source_options(spec: PipelineSpec, cluster: Cluster) -> dict[str, str]:
    """Return the options for `spark.readStream.format("kalda")`."""
    source = spec.source
    assert isinstance(source, TopicSource), spec.kind
    options = {f"{_KAFKA}{name}": value for name, value in cluster.properties.items()}
    options.setdefault("kafka.isolation.level", "read_committed")
    options.setdefault("kafka.client.id", spec.group_id)
    options["kafka.group.id"] = spec.group_id
    options["malformedTimestamps"] = "null"  # the task makes a dead letter of the record
    replayed = (spec.retry_topic,) if spec.has_dead_letters else ()
    if source.pattern is not None:
        # The source looks for a pattern anywhere in a name.
        own = "".join(f"(?!{re.escape(name)}$)" for name in sorted(spec.written_topics))
        alternatives = (f"{own}(?:{source.pattern})", *map(re.escape, replayed))
        options["subscribePattern"] = f"^(?:{'|'.join(alternatives)})$"
    else:
        options["subscribe"] = ",".join((*source.topics, *replayed))
    if _TIME.fullmatch(source.start):
        options["startingTimestamp"] = str(_milliseconds(source.start))
    else:
        options["startingOffsets"] = source.start
    if source.records_per_batch_max is not None:
        options["maxOffsetsPerTrigger"] = str(source.records_per_batch_max)
    return options | dict(source.options)


def _milliseconds(text: str) -> int:
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
