"""Elle's anomalies in a history of transactions that append to lists and read them: `anomalies`.

A list is a partition; a value is appended once at most. The order of the values in the final lists, and what
transactions read, give the dependencies: T1 before T2 if T2's value is behind T1's (ww), if T2 read T1's
value (wr), or if T2 appended behind what T1 had read (rw). The names are those of Adya and of Jepsen's Elle.

Kafka does not isolate the writes of two transactional ids from each other, so G0 and G1c between them are
no fault. The transactions of one transactional id happen one after the other: a caller that looks for cycles
gives these transactions alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

ListName: TypeAlias = int
Value: TypeAlias = str

_SHOWN: Final = 6


class Fate(Enum):
    """How a transaction ended, as far as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a client did in one transaction.

    `reads` are the values that it found in a list before it appended to it, from the first value on.
    """

    name: str
    fate: Fate
    appends: Sequence[tuple[ListName, Value]]
    reads: Mapping[ListName, Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation of isolation; `name` is Elle's where Elle has one."""

    name: str
    text: str


def anomalies(
    transactions: Sequence[Transaction], lists: Mapping[ListName, Sequence[Value]]
) -> list[Anomaly]:
    """Return the anomalies that the final lists show, in a fixed order."""
    writers = {value: each for each in transactions for _, value in each.appends}
    found = [
        *_duplicates(lists),
        *_outcomes(transactions, lists),
        *_reads(transactions, lists, writers),
        *_lost_updates(transactions, lists),
    ]
    found += cycles(transactions, lists)
    return found


def _duplicates(lists: Mapping[ListName, Sequence[Value]]) -> Iterator[Anomaly]:
    places: dict[Value, list[tuple[ListName, int]]] = {}
    for name, values in lists.items():
        for index, value in enumerate(values):
            places.setdefault(value, []).append((name, index))
    for value, at in places.items():
        if len(at) > 1:
            yield Anomaly("duplicate", f"{value} is at {at}")


def _outcomes(
    transactions: Sequence[Transaction], lists: Mapping[ListName, Sequence[Value]]
) -> Iterator[Anomaly]:
    contents = {name: set(values) for name, values in lists.items()}
    for each in transactions:
        seen = [value for name, value in each.appends if value in contents.get(name, ())]
        missing = [value for name, value in each.appends if value not in contents.get(name, ())]
        if each.fate is Fate.ABORTED and seen:
            yield Anomaly("G1a", f"{each.name} was aborted; visible: {seen[:_SHOWN]}")
        elif each.fate is Fate.COMMITTED and missing:
            yield Anomaly("lost write", f"{each.name} was committed; missing: {missing[:_SHOWN]}")
        elif seen and missing:
            yield Anomaly(
                "partial transaction", f"{each.name}: visible {seen[:_SHOWN]}, missing {missing[:_SHOWN]}"
            )


def _reads(
    transactions: Sequence[Transaction],
    lists: Mapping[ListName, Sequence[Value]],
    writers: Mapping[Value, Transaction],
) -> Iterator[Anomaly]:
    for reader in transactions:
        for name, values in reader.reads.items():
            aborted = [value for value in values if value in writers and writers[value].fate is Fate.ABORTED]
            if aborted:
                yield Anomaly("G1a", f"{reader.name} read {aborted[:_SHOWN]} of an aborted transaction")
                continue
            if values and values[-1] in writers:
                writer = writers[values[-1]]
                of_writer = [value for where, value in writer.appends if where == name]
                if writer is not reader and values[-1] != of_writer[-1]:
                    yield Anomaly(
                        "G1b", f"{reader.name} read up to {values[-1]}, in the middle of {writer.name}"
                    )
                    continue
            final = list(lists.get(name, ()))
            if final[: len(values)] != list(values):
                yield Anomaly("incompatible order", f"{reader.name} read {_differs(values, final)} of {name}")


def _differs(values: Sequence[Value], final: Sequence[Value]) -> str:
    for index, value in enumerate(values):
        if index >= len(final) or final[index] != value:
            return f"{value} at {index}, where {final[index] if index < len(final) else 'nothing'} is at last"
    return "nothing else"


def _lost_updates(
    transactions: Sequence[Transaction], lists: Mapping[ListName, Sequence[Value]]
) -> Iterator[Anomaly]:
    updates: dict[tuple[ListName, int], list[str]] = {}
    for each in transactions:
        written = {name for name, value in each.appends if value in set(lists.get(name, ()))}
        for name in sorted(written & set(each.reads)):
            updates.setdefault((name, len(each.reads[name])), []).append(each.name)
    for (name, length), names in updates.items():
        if len(names) > 1:
            yield Anomaly("lost update", f"{names[:_SHOWN]} all read {length} values of {name} and appended")


# Cycles.


def cycles(transactions: Sequence[Transaction], lists: Mapping[ListName, Sequence[Value]]) -> list[Anomaly]:
    """Return a G0 for each knot of writes, a G1c where reads are needed to close it, and else a G-single."""
    writers = {value: each.name for each in transactions for _, value in each.appends}
    ww = _write_edges(lists, writers)
    wr, rw = _read_edges(transactions, lists, writers)
    found: list[Anomaly] = []
    known: set[str] = set()
    for name, edges in (("G0", [ww]), ("G1c", [ww, wr]), ("G-single", [ww, wr, rw])):
        for knot in _knots(_joined(edges)):
            if known.isdisjoint(knot):
                found.append(Anomaly(name, f"a cycle of {sorted(knot)[:_SHOWN]}"))
                known.update(knot)
    return found


_Edges: TypeAlias = dict[str, set[str]]


def _write_edges(lists: Mapping[ListName, Sequence[Value]], writers: Mapping[Value, str]) -> _Edges:
    edges: _Edges = {}
    for values in lists.values():
        before: str | None = None
        for value in values:
            writer = writers.get(value)
            if writer is None:
                continue
            if before is not None and before != writer:
                edges.setdefault(before, set()).add(writer)
            before = writer
    return edges


def _read_edges(
    transactions: Sequence[Transaction],
    lists: Mapping[ListName, Sequence[Value]],
    writers: Mapping[Value, str],
) -> tuple[_Edges, _Edges]:
    wr: _Edges = {}
    rw: _Edges = {}
    for reader in transactions:
        if not any(value in set(lists.get(name, ())) for name, value in reader.appends):
            continue
        for name, values in reader.reads.items():
            if values and writers.get(values[-1], reader.name) != reader.name:
                wr.setdefault(writers[values[-1]], set()).add(reader.name)
            rest = lists.get(name, ())[len(values) :]
            overwriter = next((writers[value] for value in rest if value in writers), None)
            if overwriter is not None and overwriter != reader.name:
                rw.setdefault(reader.name, set()).add(overwriter)
    return wr, rw


def _joined(parts: Sequence[_Edges]) -> _Edges:
    edges: _Edges = {}
    for part in parts:
        for source, targets in part.items():
            edges.setdefault(source, set()).update(targets)
    return edges


def _knots(edges: _Edges) -> Iterator[set[str]]:
    """Return the strongly connected components of more than one node (Tarjan, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for root in sorted(edges):
        if root in number:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(edges[root])))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    knot = _taken(path, on_path, node)
                    if len(knot) > 1:
                        yield knot
            elif target not in number:
                number[target] = low[target] = len(number)
                path.append(target)
                on_path.add(target)
                work.append((target, iter(sorted(edges.get(target, ())))))
            elif target in on_path:
                low[node] = min(low[node], number[target])


def _taken(path: list[str], on_path: set[str], until: str) -> set[str]:
    knot: set[str] = set()
    while True:
        node = path.pop()
        on_path.discard(node)
        knot.add(node)
        if node == until:
            return knot
