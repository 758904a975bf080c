"""Golden transcripts of a member of the consumer protocol (KIP-848): heartbeats, answers, reconciliation.

``heartbeat`` prints the fields that are sent, ``answer`` gives the answer to it; topics are single letters,
whose ids the metadata knows if ``names`` lists them.
"""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kalda.clients.consumer.group.consumer_member import (
    ConsumerMember,
    LocalAssignment,
    MemberOptions,
    Partitions,
    Reconciliation,
    SubscribedTopics,
)
from kalda.clients.errors import ClientError
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.golden.transcripts import replay

TRANSCRIPTS = sorted(Path(__file__).parent.glob("consumer-member-*.txt"))


class Player:
    """One member."""

    def __init__(self) -> None:
        self.member = ConsumerMember(MemberOptions("g", None, None, 300_000, None), "m1")
        self.topics = SubscribedTopics(frozenset("T"))
        self.names = "T"
        self.step: Reconciliation | None = None

    def play(self, commands: list[str]) -> Iterator[str]:
        for command in commands:
            yield f"{command}: {self.run(*command.split())}"
            yield f"  {self.where()}"

    def run(self, name: str, *words: str) -> str:
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        result: str = getattr(self, name.replace("-", "_"))(
            *(word for word in words if "=" not in word), **fields
        )
        return result

    def new(self, **fields: str) -> str:
        options = MemberOptions(
            "g", fields.get("instance"), fields.get("rack"), 300_000, fields.get("assignor")
        )
        self.member = ConsumerMember(options, "m1")
        return "not in the group"

    def subscribe(self, names: str = "", regex: str | None = None) -> str:
        self.topics = SubscribedTopics(frozenset(names), regex)
        return "a heartbeat is due" if self.member.has_unsent(self.topics) else "nothing to send"

    def metadata(self, names: str) -> str:
        self.names = names
        return "noted"

    def join(self) -> str:
        self.member.join()
        return "noted"

    def heartbeat(self, version: str = "1") -> str:
        return request_text(self.member.heartbeat_request(int(version), self.topics))

    def lost(self) -> str:
        self.member.heartbeat_failed()
        return "no answer"

    def answer(self, code: str = "NONE", **fields: str) -> str:
        assigned = fields.get("assigned")
        topics = [
            TopicPartitions(topic_id=topic_id(each[0]), partitions=[int(digit) for digit in each[1:]])
            for each in (assigned or "").split(",")
            if each
        ]
        response = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode[code],
            error_message=None,
            member_id=fields.get("member", self.member.member_id),
            member_epoch=int(fields.get("epoch", 0)),
            heartbeat_interval_ms=5000,
            assignment=None if assigned is None else Assignment(topic_partitions=topics),
        )
        try:
            return self.member.on_heartbeat_response(response).value
        except ClientError as error:
            return f"{type(error).__name__}: {error}"

    def reconcile(self) -> str:
        step = self.step = self.member.reconcile({topic_id(name): name for name in self.names})
        unresolved = ", ".join(map(letter, sorted(step.unresolved)))
        partitions = ", ".join(map(str, sorted(step.assigned))) or "nothing"
        return f"{partitions}{f' (no name for {unresolved})' if unresolved else ''}"

    def reconciled(self) -> str:
        assert self.step is not None
        if not self.member.is_reconciling(self.step):
            return "not relevant any more"
        if not self.member.take(self.step):
            return "has to wait for the answer to a heartbeat"
        self.member.taken(self.step)
        return "a heartbeat is due" if self.member.is_heartbeat_urgent else "nothing is due"

    def commit(self) -> str:
        try:
            self.member.check_commit()
        except ClientError as error:
            return f"{type(error).__name__}: {error}"
        return f"OffsetCommit of {self.member.member_id} in epoch {self.member.epoch}"

    def commit_answer(self, code: str) -> str:
        error = self.member.on_commit_refused(ErrorCode[code])
        return f"{type(error).__name__}{', retriable' if error.is_retriable else ''}: {error}"

    def prepare_leaving(self) -> str:
        self.member.prepare_leaving()
        return "noted"

    def leave(self) -> str:
        request = self.member.leave_request()
        return "nothing to send" if request is None else request_text(request)

    def poll_expires(self) -> str:
        return request_text(self.member.expire_poll())

    def where(self) -> str:
        member = self.member
        lost = ", partitions lost" if member.has_lost_partitions else ""
        owned, target = text(member.current), text(member.target)
        return f"{member.state.value}, epoch {member.epoch}, owns {owned}, target {target}{lost}"


def topic_id(name: str) -> UUID:
    return UUID(int=ord(name))


def letter(each: UUID) -> str:
    return chr(each.int)


def text(assignment: LocalAssignment) -> str:
    return partitions_text(assignment.partitions)


def partitions_text(partitions: Partitions) -> str:
    parts = [f"{letter(each)}{''.join(map(str, sorted(partitions[each])))}" for each in sorted(partitions)]
    return ",".join(parts) or "nothing"


def request_text(request: ConsumerGroupHeartbeatRequest) -> str:
    parts = [f"member={request.member_id!r} epoch={request.member_epoch}"]
    if request.instance_id is not None:
        parts.append(f"instance={request.instance_id}")
    if request.rack_id is not None:
        parts.append(f"rack={request.rack_id}")
    if request.rebalance_timeout_ms >= 0:
        parts.append(f"timeout={request.rebalance_timeout_ms}")
    if request.subscribed_topic_names is not None:
        parts.append(f"names={''.join(request.subscribed_topic_names)}")
    if request.subscribed_topic_regex is not None:
        parts.append(f"regex={request.subscribed_topic_regex!r}")
    if request.server_assignor is not None:
        parts.append(f"assignor={request.server_assignor}")
    if request.topic_partitions is not None:
        owned = {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions}
        parts.append(f"owns={partitions_text(owned)}")
    return " ".join(parts)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    """With KALDA_REWRITE_TRANSCRIPTS=1 the transcripts are written from what the member does."""
    player = Player()
    assert path.read_text(encoding="utf-8") == replay(path, player.play)
