"""Decides in which order pipelines run that process what is there and end.

A pipeline reads what another one of the same file writes, a table or a topic by its name: it starts when that
one has ended, so that one `once` brings a record through all of them. Pipelines that form a circle all start.
"""

from collections.abc import Sequence

from kalda.pipelines.spec.model import PipelineSpec, TableSource, TableSpec, TopicSource, TopicTarget


def writers_before(specs: Sequence[PipelineSpec]) -> dict[str, frozenset[str]]:
    """Return, for each pipeline, those that must have ended before it starts.

    A writer that reads, directly or by way of others, what its reader writes is not waited for.
    """
    writers = {
        reader.name: {each.name for each in specs if each is not reader and writes_for(each, reader)}
        for reader in specs
    }
    return {
        name: frozenset(each for each in found if name not in _all_before(each, writers))
        for name, found in writers.items()
    }


def writes_for(writer: PipelineSpec, reader: PipelineSpec) -> bool:
    """Return whether a pipeline writes the table or a named topic that another one reads."""
    source, target = reader.source, writer.target
    if isinstance(source, TableSource):
        return isinstance(target, TableSpec) and target.path == source.path
    if isinstance(source, TopicSource) and isinstance(target, TopicTarget):
        return target.cluster == source.cluster and target.topic in source.topics
    return False


def _all_before(name: str, writers: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    to_visit = [name]
    while to_visit:
        new = writers[to_visit.pop()] - found
        found |= new
        to_visit += new
    return found
