"""Golden transcripts of consumer groups (KIP-848): heartbeats, answers, records and the state after them.

Like those of classic groups: blocks of commands, a line of dashes, what follows from them.
``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/coordinator`` writes that anew; then review the diff.
"""

from pathlib import Path
from uuid import UUID

import pytest

from kalda.common.errors import ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord, decode_key, decode_value
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import Assignment, assignment_of
from kalda.protocol.messages import consumer_group_records as messages
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse, TopicPartitions
from kalda.protocol.schema import Message
from tests.golden.transcripts import replay
from tests.unit.coordinator.group.consumer.consumer_simulation import GROUP, ConsumerSimulation

TRANSCRIPTS = sorted(Path(__file__).parent.glob("consumer-group-*.txt"))
TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    3: (messages.ConsumerGroupMetadataKey, messages.ConsumerGroupMetadataValue),
    4: (messages.ConsumerGroupPartitionMetadataKey, messages.ConsumerGroupPartitionMetadataValue),
    5: (messages.ConsumerGroupMemberMetadataKey, messages.ConsumerGroupMemberMetadataValue),
    6: (
        messages.ConsumerGroupTargetAssignmentMetadataKey,
        messages.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (messages.ConsumerGroupTargetAssignmentMemberKey, messages.ConsumerGroupTargetAssignmentMemberValue),
    8: (messages.ConsumerGroupCurrentMemberAssignmentKey, messages.ConsumerGroupCurrentMemberAssignmentValue),
    16: (messages.ConsumerGroupRegularExpressionKey, messages.ConsumerGroupRegularExpressionValue),
}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_members_see(path: Path) -> None:
    """Each file tells one scenario; a change of behaviour shows as a diff that a person can judge."""
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, _Player().play)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8


class _Player:
    def __init__(self) -> None:
        self.simulation = ConsumerSimulation()
        self.events: list[str] = []

    def play(self, commands: list[str]) -> list[str]:
        self.events = []
        written = len(self.simulation.records)
        for line in commands:
            self.run(line)
        records = [self.record(record) for record in self.simulation.records[written:]]
        return [*self.events, *records, self.state()]

    def run(self, line: str) -> None:
        command, *words = line.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        simulation = self.simulation
        if command == "settings":
            self.simulation = ConsumerSimulation(
                **{f"group_consumer_{name}": int(value) for name, value in options.items()}
            )
        elif command == "topics":
            for name, count in options.items():
                simulation.topics.put(name, int(count))
            for name in names:
                simulation.topics.delete(name)
        elif command == "client":
            simulation.client(
                names[0],
                *(name for name in options.get("topics", "t").split(",") if name),
                instance_id=options.get("instance"),
                regex=options.get("regex"),
                assignor=options.get("assignor"),
            )
        elif command in ("beat", "lose"):
            for name in names:
                client = simulation.clients[name]
                self.tell(name, simulation.beat(client, loses_response=command == "lose"))
        elif command == "leave":
            epoch = int(options.get("epoch", "-1"))
            self.tell(names[0], simulation.leave(simulation.clients[names[0]], epoch))
        elif command == "owns":
            # The client says that it has more or less than it was given.
            client = simulation.clients[names[0]]
            client.given = None
            client.owned = {self.partition(word) for word in names[1:]}
        elif command == "send":
            version = int(options.pop("version", "1"))
            fields = {name: _value(value) for name, value in options.items()}
            if "topic_partitions" in options:
                fields["topic_partitions"] = self.partitions(options["topic_partitions"])
            self.tell("-", simulation.send(version, **fields))
        elif command == "advance":
            simulation.advance(int(names[0]))
        elif command == "failover":
            simulation.fail_over(compacted="compacted" in names)
        else:
            raise AssertionError(f"unknown command: {line}")

    def partition(self, word: str) -> tuple[UUID, int]:
        topic, number = word.rsplit("-", 1)
        found = self.simulation.topics.topic(topic)
        assert found is not None
        return found.topic_id, int(number)

    def partitions(self, text: str) -> list[TopicPartitions]:
        pairs = [self.partition(word) for word in text.split(",") if word not in ("", "None", "[]")]
        return [TopicPartitions(topic_id=topic_id, partitions=[number]) for topic_id, number in pairs]

    def tell(self, name: str, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code:
            code = ErrorCode(response.error_code).name
            self.events.append(f"{name}: {code} {response.error_message}")
            return
        told = f"{name}: member {response.member_id} epoch {response.member_epoch}"
        if response.assignment is not None:
            told += f" gets {self.names(assignment_of(response.assignment.topic_partitions))}"
        self.events.append(told)

    def names(self, assignment: Assignment) -> str:
        names = [
            f"{self.simulation.topics.topic_name(topic_id) or f'gone{topic_id.int}'}-{number}"
            for topic_id, numbers in assignment.items()
            for number in numbers
        ]
        return f"[{' '.join(sorted(names))}]"

    def record(self, record: CoordinatorRecord) -> str:
        decoded = decode_key(TYPES, record.key)
        assert decoded is not None
        version, key = decoded
        who = " ".join(
            str(getattr(key, name)) for name in ("member_id", "regular_expression") if hasattr(key, name)
        )
        kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        head = f"  {kind}({who})" if who else f"  {kind}"
        if record.value is None:
            return f"{head} is removed"
        return f"{head} {self.value(decode_value(TYPES[version][1], record.value))}"

    def value(self, value: Message) -> str:
        match value:
            case messages.ConsumerGroupMetadataValue():
                return f"epoch={value.epoch}"
            case messages.ConsumerGroupTargetAssignmentMetadataValue():
                return f"epoch={value.assignment_epoch}"
            case messages.ConsumerGroupPartitionMetadataValue():
                return " ".join(f"{topic.topic_name}={topic.num_partitions}" for topic in value.topics)
            case messages.ConsumerGroupMemberMetadataValue():
                parts = [f"topics={','.join(value.subscribed_topic_names)}"]
                names = ("instance_id", "rack_id", "subscribed_topic_regex", "server_assignor")
                told = {name: getattr(value, name) for name in names}
                parts.extend(f"{name}={each}" for name, each in told.items() if each is not None)
                return " ".join(parts)
            case messages.ConsumerGroupTargetAssignmentMemberValue():
                return self.names(assignment_of(value.topic_partitions))
            case messages.ConsumerGroupRegularExpressionValue():
                return f"topics={','.join(value.topics)}"
            case messages.ConsumerGroupCurrentMemberAssignmentValue():
                assigned = self.names(assignment_of(value.assigned_partitions))
                pending = self.names(assignment_of(value.partitions_pending_revocation))
                epochs = f"{value.previous_member_epoch}->{value.member_epoch}"
                return f"epoch={epochs} state={value.state} has={assigned} revokes={pending}"
        raise AssertionError(f"unknown record: {value}")

    def state(self) -> str:
        group = self.simulation.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return "no group"
        members = [
            f"{member_id}@{member.epoch} {member.state.name} {self.names(member.assigned)}"
            for member_id, member in sorted(group.members.items())
        ]
        head = f"{group.state_name} epoch={group.epoch} assignment={group.assignment_epoch}"
        return "; ".join([head, *members])


def _value(text: str) -> object:
    if text == "None":
        return None
    if text == "[]":
        return []
    if text.lstrip("-").isdigit():
        return int(text)
    return [each for each in text.split(",") if each] if "," in text else text
