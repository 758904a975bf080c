"""Reads the files of a state folder, and computes what a pull changes in it.

Every fault is collected, so that one run names all of them. A pull leaves a file alone whose content already
says the same: comments and order stay.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeVar

from kalda.common.types import TopicPartition
from kalda.tools.state import documents
from kalda.tools.state.documents import Environment
from kalda.tools.state.model import ClusterState, Configs, Parts, SubjectState, TopicState
from kalda.tools.state.yaml_nodes import Node, StateFileError, read

T = TypeVar("T")

_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A group's file with an offset for each of 100,000 partitions has about half of this."""


@dataclass(slots=True)
class Folder:
    """What the files of a folder say."""

    environment: Environment = field(default_factory=Environment)
    topics: dict[str, TopicState] | None = None
    groups: dict[str, dict[TopicPartition, int]] | None = None
    broker_configs: dict[int | None, dict[str, str]] | None = None
    subjects: dict[str, SubjectState] | None = None
    paths: dict[tuple[str, str], str] = field(default_factory=dict)
    """The file of each topic, group and subject, by kind and name."""
    faults: list[str] = field(default_factory=list)

    @property
    def state(self) -> ClusterState:
        """The wanted state."""
        return ClusterState(self.topics, self.groups, self.broker_configs, self.subjects)

    @property
    def parts(self) -> Parts:
        """The parts that have files; a push leaves the others of a cluster alone."""
        return Parts(
            self.topics is not None,
            self.groups is not None,
            self.broker_configs is not None,
            self.subjects is not None,
        )

    def limited(self, parts: Parts) -> "Folder":
        """Return the folder as if it had the files of these parts only."""
        kinds = {
            documents.TOPICS: parts.topics,
            documents.GROUPS: parts.groups,
            documents.SUBJECTS: parts.subjects,
        }
        return replace(
            self,
            topics=self.topics if parts.topics else None,
            groups=self.groups if parts.groups else None,
            broker_configs=self.broker_configs if parts.brokers else None,
            subjects=self.subjects if parts.subjects else None,
            paths={key: path for key, path in self.paths.items() if kinds[key[0]]},
        )


def load(directory: Path) -> Folder:
    """Read a folder; faults of its files are in `Folder.faults`, and those files are left out.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    folder = Folder()

    def parse(path: Path, reader: Callable[[Node], T]) -> T | None:
        name = str(path.relative_to(directory))
        try:
            return reader(read(name, _text(path, name)))
        except StateFileError as error:
            folder.faults.append(str(error))
            return None

    names = {entry.name for entry in directory.iterdir()}
    folder.faults += _misspelled(names)
    if documents.ENVIRONMENT_FILE in names:
        path = directory / documents.ENVIRONMENT_FILE
        folder.environment = parse(path, documents.read_environment) or folder.environment
    if documents.BROKERS_FILE in names:
        folder.broker_configs = parse(directory / documents.BROKERS_FILE, documents.read_brokers)
    if documents.TOPICS in names:
        folder.topics = {}
        for path in _files(directory / documents.TOPICS):
            topic = parse(path, documents.read_topic)
            if topic is not None and folder_takes(folder, documents.TOPICS, topic.name, path, directory):
                folder.topics[topic.name] = topic
    if documents.GROUPS in names:
        folder.groups = {}
        for path in _files(directory / documents.GROUPS):
            found = parse(path, documents.read_group)
            if found is not None and folder_takes(folder, documents.GROUPS, found[0], path, directory):
                folder.groups[found[0]] = found[1]
    if documents.SUBJECTS in names:
        folder.subjects = {}
        for path in _files(directory / documents.SUBJECTS):
            subject = parse(path, documents.read_subject)
            if subject is not None and folder_takes(
                folder, documents.SUBJECTS, subject.name, path, directory
            ):
                folder.subjects[subject.name] = subject
    return folder


def _misspelled(names: set[str]) -> list[str]:
    """Return a fault for each name that looks like one of ours: a push would leave that part alone."""
    known = (
        documents.ENVIRONMENT_FILE,
        documents.BROKERS_FILE,
        documents.TOPICS,
        documents.GROUPS,
        documents.SUBJECTS,
    )
    faults = []
    for name in sorted(names.difference(known)):
        near = get_close_matches(name.lower(), known, n=1, cutoff=0.8)
        if near and near[0] not in names:
            faults.append(f"{name} is not read: did you mean {near[0]}? Rename it, or give it another name")
    return faults


def folder_takes(folder: Folder, kind: str, name: str, path: Path, directory: Path) -> bool:
    """Note the file of a topic or group; refuse a second file for the same name."""
    shown = str(path.relative_to(directory))
    first = folder.paths.setdefault((kind, name), shown)
    if first != shown:
        folder.faults.append(f"{shown}: {kind.removesuffix('s')} {name} is in {first} too; keep one of them")
    return first == shown


def pulled_files(folder: Folder, state: ClusterState) -> dict[str, str | None]:
    """Return the files that a pull of `state` writes, by path; None deletes a file."""
    changes: dict[str, str | None] = {}
    topics: Mapping[str, TopicState] = state.topics or {}
    groups: Mapping[str, Mapping[TopicPartition, int]] = state.groups or {}
    for name, topic in topics.items():
        if (folder.topics or {}).get(name) != topic:
            path = folder.paths.get((documents.TOPICS, name), documents.topic_file(name))
            changes[path] = documents.topic_text(topic)
    for group, offsets in groups.items():
        if (folder.groups or {}).get(group) != offsets:
            path = folder.paths.get((documents.GROUPS, group), documents.group_file(group))
            changes[path] = documents.group_text(group, offsets)
    subjects: Mapping[str, SubjectState] = state.subjects or {}
    for name, subject in subjects.items():
        if (folder.subjects or {}).get(name) != subject:
            path = folder.paths.get((documents.SUBJECTS, name), documents.subject_file(name))
            changes[path] = documents.subject_text(subject)
    present = {documents.TOPICS: topics, documents.GROUPS: groups, documents.SUBJECTS: subjects}
    for (kind, name), path in folder.paths.items():
        if name not in present[kind]:
            changes[path] = None
    brokers: Mapping[int | None, Configs] = state.broker_configs or {}
    if (folder.broker_configs or {}) != brokers or (brokers and folder.broker_configs is None):
        changes[documents.BROKERS_FILE] = documents.brokers_text(brokers) if brokers else None
    return changes


def write_files(directory: Path, changes: Mapping[str, str | None]) -> None:
    """Write and delete files of a folder; raises `OSError`."""
    for name, text in changes.items():
        path = directory / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in (".yml", ".yaml"))


def _text(path: Path, name: str) -> str:
    size = path.stat().st_size
    if size > _FILE_BYTES_MAX:
        raise StateFileError(name, None, f"the file has {size} bytes; the limit is {_FILE_BYTES_MAX}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StateFileError(name, None, f"this is not UTF-8: {error.reason} at byte {error.start}") from None
