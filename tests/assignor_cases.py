"""Cases for assignors as text, so that Java's assignors can be given the same, and random ones.

A case is a few lines: ``assignor range``, ``topic t0 a+b -`` (a topic of two partitions, the first with
replicas on the racks a and b, the second on brokers without a rack), ``member m0 topics=t0 owned=t0-1 …``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from kalda.clients.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor
from kalda.clients.consumer.assignors.partition_assignor import (
    Assignment,
    BuiltInAssignor,
    Subscription,
)
from kalda.clients.consumer.assignors.range_assignor import RangeAssignor
from kalda.clients.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from kalda.clients.consumer.assignors.sticky_assignor import StickyAssignor
from kalda.common.types import TopicPartition

ASSIGNORS: dict[str, type[BuiltInAssignor]] = {
    each.name: each for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


@dataclass
class AssignorCase:
    """The input of one call of an assignor."""

    assignor: str
    topics: dict[str, list[frozenset[str]]] = field(default_factory=dict)
    members: dict[str, Subscription] = field(default_factory=dict)

    def assign(self) -> dict[str, Assignment]:
        """Run a new instance of the assignor."""
        return ASSIGNORS[self.assignor]().assign(self.topics, self.members)

    def lines(self) -> list[str]:
        """Write the case."""
        lines = [f"assignor {self.assignor}"]
        for topic, racks in self.topics.items():
            lines.append(" ".join(["topic", topic, *("+".join(sorted(each)) or "-" for each in racks)]))
        return lines + [_member_line(member_id, each) for member_id, each in self.members.items()]


def read_case(lines: Iterable[str]) -> AssignorCase:
    """Read what `AssignorCase.lines` wrote."""
    case = AssignorCase("")
    for line in lines:
        kind, name, *rest = line.split(" ")
        if kind == "assignor":
            case.assignor = name
        elif kind == "topic":
            case.topics[name] = [frozenset() if each == "-" else frozenset(each.split("+")) for each in rest]
        else:
            case.members[name] = _member(dict(word.split("=", 1) for word in rest))
    return case


def result_lines(assigned: dict[str, Assignment]) -> list[str]:
    """Write a result as `Assignments.java` does."""
    return [" ".join([f"{each}:", *map(str, assigned[each].partitions)]) for each in sorted(assigned)]


def random_generations(random: Random, assignor: str, *, racks: bool) -> list[AssignorCase]:
    """Return successive rebalances of one group, in which members and partitions come and go."""
    prefix = random.choice(["t", "orders.", "x-"])
    topics = {f"{prefix}{n}": _partitions(random, racks) for n in range(random.randint(1, 6))}
    instances = {name: ASSIGNORS[assignor]() for name in _member_ids(random)}
    equal = random.random() < 0.5
    subscribed = {name: _some(random, list(topics), equal) for name in instances}
    with_racks = {name: random.choice("abc") if racks else None for name in instances}
    static = random.random() < 0.3
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    generations: dict[str, int] = {}
    cases = []
    for generation in range(random.randint(1, 5)):
        alive = [name for name in instances if random.random() < 0.8] or list(instances)[:1]
        if random.random() < 0.3:
            # Topics only grow: Java's sticky assignors go wrong where partitions have gone.
            topics.setdefault(f"{prefix}{random.randint(0, 7)}", []).extend(_partitions(random, racks))
        if random.random() < 0.3 and not equal:
            subscribed[random.choice(alive)] = _some(random, list(topics), False)
        if equal:
            subscribed = {name: list(topics) for name in instances}
        case = AssignorCase(assignor, {name: list(each) for name, each in topics.items()})
        for name in random.sample(alive, len(alive)):
            case.members[name] = Subscription(
                topics=tuple(subscribed[name]),
                user_data=instances[name].subscription_user_data(subscribed[name]),
                owned_partitions=tuple(_existing(owned.get(name, ()), topics)),
                generation_id=generations.get(name, -1) if random.random() < 0.9 else -1,
                rack_id=with_racks[name] if random.random() < 0.9 else None,
                group_instance_id=f"i{sum(name.encode()) % 7}{name}" if static and name[-1] > "4" else None,
            )
        cases.append(case)
        for name, assignment in case.assign().items():
            if random.random() < 0.9:
                kept = tuple(_existing(assignment.partitions, topics))
                owned[name], generations[name] = kept, generation
                instances[name].on_assignment(Assignment(kept), generation)
    return cases


def _existing(
    partitions: Sequence[TopicPartition], topics: dict[str, list[frozenset[str]]]
) -> list[TopicPartition]:
    return [each for each in partitions if each.partition < len(topics.get(each.topic, ()))]


def _partitions(random: Random, racks: bool) -> list[frozenset[str]]:
    count = random.randint(1, 12)
    if not racks:
        return [frozenset()] * count
    return [frozenset(random.sample("abcd", random.randint(1, 3))) for _ in range(count)]


def _member_ids(random: Random) -> list[str]:
    count = random.choice([1, 2, 3, 5, 8, 14, 30])
    return [f"consumer-{random.randint(0, 9)}-{random.getrandbits(64):016x}" for _ in range(count)]


def _some(random: Random, topics: list[str], equal: bool) -> list[str]:
    return list(topics) if equal else random.sample(topics, random.randint(1, len(topics)))


def _member_line(member_id: str, each: Subscription) -> str:
    words = ["member", member_id, f"topics={','.join(each.topics)}"]
    if each.group_instance_id is not None:
        words.append(f"instance={each.group_instance_id}")
    if each.rack_id is not None:
        words.append(f"rack={each.rack_id}")
    if each.generation_id >= 0:
        words.append(f"generation={each.generation_id}")
    if each.owned_partitions:
        words.append(f"owned={','.join(map(str, each.owned_partitions))}")
    if each.user_data is not None:
        words.append(f"data={each.user_data.hex()}")
    return " ".join(words)


def _member(fields: dict[str, str]) -> Subscription:
    names = [name.rpartition("-") for name in fields.get("owned", "").split(",") if name]
    data = fields.get("data")
    return Subscription(
        topics=tuple(name for name in fields["topics"].split(",") if name),
        user_data=None if data is None else bytes.fromhex(data),
        owned_partitions=tuple(TopicPartition(topic, int(number)) for topic, _, number in names),
        generation_id=int(fields.get("generation", -1)),
        rack_id=fields.get("rack"),
        group_instance_id=fields.get("instance"),
    )
