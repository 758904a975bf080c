"""What a simulated disk keeps when its machine loses power, for any sequence of operations."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from kalda.simulation.disk import SimulatedDisk, SimulatedFileSystem

NAMES = ("a", "b", "c")

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), st.integers(0, 12), st.binary(max_size=6)),
        st.tuples(st.just("truncate"), st.sampled_from(NAMES), st.integers(0, 12)),
        st.tuples(st.just("sync"), st.sampled_from(NAMES)),
        st.tuples(st.just("replace"), st.sampled_from(NAMES), st.binary(max_size=6)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    ),
    max_size=20,
)


@dataclass
class Files:
    """A disk beside a model: each file's contents since its last sync, and the names since theirs."""

    disk: SimulatedDisk
    system: SimulatedFileSystem
    contents: dict[int, list[bytes]] = field(default_factory=dict)
    """By number of a file, its contents after each write since the last sync, the synced one first."""
    torn: dict[int, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """Content before and after each write since the last sync."""
    names: list[dict[str, int]] = field(default_factory=lambda: [{}])
    """The names after each change since the last sync of names."""
    count: int = 0

    def create(self, name: str) -> int:
        self.count += 1
        self.contents[self.count], self.torn[self.count] = [b""], []
        self.names.append({**self.names[-1], name: self.count})
        return self.count

    def changed(self, number: int, after: bytes) -> None:
        before = self.contents[number][-1]
        self.torn[number].append((before, after))
        self.contents[number].append(after)

    def synced(self, number: int | None) -> None:
        self.names[:] = self.names[-1:]
        if number is not None:
            self.contents[number][:] = self.contents[number][-1:]
            self.torn[number].clear()

    def apply(self, operation: tuple[object, ...]) -> None:
        kind, name, *rest = operation
        assert isinstance(name, str)
        path, number = f"/data/{name}", self.names[-1].get(name)
        if kind == "write":
            position, data = rest
            assert isinstance(position, int)
            assert isinstance(data, bytes)
            number = self.create(name) if number is None else number
            self.system.open(path, create=True).write_at(data, position)
            before = self.contents[number][-1].ljust(position, b"\0")
            self.changed(number, before[:position] + data + before[position + len(data) :])
        elif kind == "replace":
            (data,) = rest
            assert isinstance(data, bytes)
            self.system.replace(path, data, sync=True)
            self.count += 1
            self.contents[self.count], self.torn[self.count] = [data], []
            self.names[:] = [{**self.names[-1], name: self.count}]
        elif number is None:
            return
        elif kind == "truncate":
            (size,) = rest
            assert isinstance(size, int)
            self.system.open(path).truncate(size)
            self.changed(number, self.contents[number][-1][:size].ljust(size, b"\0"))
        elif kind == "sync":
            self.system.open(path).sync()
            self.synced(number)
        elif kind == "rename":
            (target,) = rest
            assert isinstance(target, str)
            if target != name:
                self.system.rename(path, f"/data/{target}")
                left = {each: value for each, value in self.names[-1].items() if each != name}
                self.names.append({**left, target: number})
        else:
            self.system.remove(path)
            self.names.append({each: value for each, value in self.names[-1].items() if each != name})

    def found(self) -> dict[str, bytes]:
        names = [each.name for each in self.system.list_directory("/data")]
        return {name: self.system.read(f"/data/{name}") for name in names if not name.endswith(".tmp")}

    def may_be(self, number: int, content: bytes) -> bool:
        """Whether a file may have a content: that after some write, or a write torn in the middle."""
        if content in self.contents[number]:
            return True
        return any(_is_torn(before, after, content) for before, after in self.torn[number])


def _is_torn(before: bytes, after: bytes, content: bytes) -> bool:
    """Whether the content is `after` up to some position and `before` from there on."""
    size = max(len(before), len(after))
    return any(
        content == (after[:cut] + before[cut:])[: max(cut, len(before))] for cut in range(size + 1)
    ) or any(content == before[:position].ljust(position, b"\0") for position in range(size + 1))


def _files(seed: int, operations: list[tuple[object, ...]]) -> Files:
    disk = SimulatedDisk(Random(seed), lambda: 0)
    system = SimulatedFileSystem(disk)
    system.make_directory("/data")
    system.sync_directory("/data")
    files = Files(disk, system)
    for operation in operations:
        files.apply(operation)
    return files


@given(st.integers(0, 1000), OPERATIONS)
def test_the_end_of_a_process_loses_nothing(seed: int, operations: list[tuple[object, ...]]) -> None:
    files = _files(seed, operations)
    files.system.end()
    files.system = SimulatedFileSystem(files.disk)

    expected = {name: files.contents[number][-1] for name, number in files.names[-1].items()}
    assert expected == files.found()


@given(st.integers(0, 1000), OPERATIONS)
@example(0, [("replace", "a", b"1"), ("write", "a", 0, b"")])
@example(0, [("replace", "a", b"123456"), ("write", "a", 1, b"xy")])
@example(7, [("write", "a", 7, b""), ("write", "a", 7, b"\0\0"), ("write", "a", 6, b"\0\1")])
@example(1, [("replace", "a", b"123456"), ("truncate", "a", 2), ("write", "a", 4, b"xy")])
def test_a_loss_of_power_keeps_what_was_synced_and_a_prefix_of_the_rest(
    seed: int, operations: list[tuple[object, ...]]
) -> None:
    """Of the changes of names a prefix survives; of the writes to each file too, the next one may be torn."""
    files = _files(seed, operations)

    files.disk.lose_power()

    found = files.found()
    assert any(
        names.keys() == found.keys()
        and all(files.may_be(number, found[name]) for name, number in names.items())
        for names in files.names
    ), f"{found} is left of {files.names} with {files.contents}"


@given(st.integers(0, 1000), OPERATIONS)
def test_what_is_left_is_durable(seed: int, operations: list[tuple[object, ...]]) -> None:
    files = _files(seed, operations)
    files.disk.lose_power()
    first = files.found()

    files.disk.lose_power()

    assert first == files.found()
