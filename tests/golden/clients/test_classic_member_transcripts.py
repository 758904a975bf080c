"""Golden transcripts of a member of a classic group: requests, answers, and what each answer changes.

``join``, ``sync``, ``heartbeat`` and ``commit`` print the request; ``<request>-answer CODE`` gives the answer
to the last one of its kind. After each command stands where the member is.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.clients.consumer.group.classic_member import ClassicMember, Generation
from kalda.clients.errors import ClientError
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse
from tests.golden.transcripts import replay

TRANSCRIPTS = sorted(Path(__file__).parent.glob("classic-member-*.txt"))


class Player:
    """One member."""

    def __init__(self) -> None:
        self.member = ClassicMember("g", None, 45_000, 300_000)
        self.sent: dict[str, Generation] = {}

    def play(self, commands: list[str]) -> Iterator[str]:
        for command in commands:
            yield f"{command}: {self.run(*command.split())}"
            yield f"  {self.where()}"

    def run(self, name: str, *words: str) -> str:
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            return self.answer(name, words[0], fields) if name.endswith("-answer") else self.ask(name, fields)
        except ClientError as error:
            return f"{type(error).__name__}: {error}"

    def ask(self, name: str, fields: dict[str, str]) -> str:
        member = self.member
        if name == "member":
            self.member = ClassicMember("g", fields.get("instance"), 45_000, 300_000)
            return "new"
        if name == "rejoin":
            member.request_rejoin("the application asked for it")
            return "noted"
        if name == "prepared":
            member.needs_prepare = False
            return "noted"
        if name == "leave":
            due = member.can_leave
            members = member.leave_request(5, "bye").members if due else []
            member.left("bye")
            return f"LeaveGroup {members[0].member_id} {members[0].reason!r}" if due else "nothing to send"
        self.sent[name] = member.generation
        if name == "join":
            join = member.join_request([("range", b"")])
            instance = join.group_instance_id
            return f"JoinGroup member={join.member_id!r} instance={instance} reason={join.reason!r}"
        if name == "sync":
            sync = member.sync_request({})
            return f"SyncGroup member={sync.member_id!r} generation={sync.generation_id} {sync.protocol_name}"
        if name == "heartbeat":
            heartbeat = member.heartbeat_request()
            return f"Heartbeat member={heartbeat.member_id!r} generation={heartbeat.generation_id}"
        assert "commit" == name
        return f"OffsetCommit in {member.commit_generation()}"

    def answer(self, name: str, code_name: str, fields: dict[str, str]) -> str:
        request = name.removesuffix("-answer")
        sent, code = self.sent[request], ErrorCode[code_name]
        if request == "join":
            return self.member.on_join_response(
                JoinGroupResponse(
                    error_code=code,
                    generation_id=int(fields.get("generation", -1)),
                    member_id=fields.get("member", ""),
                    protocol_type=fields.get("type", "consumer"),
                    protocol_name=fields.get("protocol", "range"),
                ),
                sent,
            ).value
        if request == "sync":
            protocol = fields.get("protocol", "range")
            response = SyncGroupResponse(
                error_code=code, protocol_type="consumer", protocol_name=protocol, assignment=b""
            )
            return self.member.on_sync_response(response, sent).value
        if request == "heartbeat":
            return self.member.on_heartbeat_response(code, sent).value
        raise self.member.on_commit_refused(code, sent)

    def where(self) -> str:
        member = self.member
        needs = [name for name in ("rejoin", "prepare") if getattr(member, f"needs_{name}")]
        lost = ", partitions lost" if member.has_lost_partitions else ""
        return f"{member.state.value}, {member.generation}, needs {' and '.join(needs) or 'nothing'}{lost}"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    """With KALDA_REWRITE_TRANSCRIPTS=1 the transcripts are written from what the member does."""
    player = Player()
    assert path.read_text(encoding="utf-8") == replay(path, player.play)
