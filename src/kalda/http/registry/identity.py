"""Encodes the JSON that processes of a registry exchange through their group, as Confluent's do.

A member's metadata says who it is. The leader of the group chooses the writer, which Confluent calls master:

    {"version":1,"host":"sr1","port":8081,"master_eligibility":true,"scheme":"http","leader":false}
    {"error":0,"master":"sr-1-…","master_identity":{…},"version":1}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from kalda.common.received_json import loads_received
from kalda.http.registry.records import encode_json

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"

NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
"""Two members have one address, so that one of them cannot be reached by others."""


class IdentityError(ValueError):
    """A member of the group sent what is no identity or assignment."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The address of a process of the registry."""

    host: str
    port: int
    is_eligible: bool
    scheme: str = "http"
    is_writer: bool = False
    """Whether it was the writer before the election; it stays it then."""

    @property
    def url(self) -> str:
        """The address without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def fields(self) -> dict[str, object]:
        """Return the fields of the JSON."""
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
            "leader": self.is_writer,
        }

    def encode(self) -> bytes:
        """Return the metadata of a member."""
        return encode_json(self.fields())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the metadata of a member.

        Raises:
            IdentityError: it is none.
        """
        return cls._of(_object(data))

    @classmethod
    def _of(cls, fields: Mapping[str, object]) -> Self:
        host, port = fields.get("host"), fields.get("port")
        if not isinstance(host, str) or not isinstance(port, int):
            raise IdentityError(f"the identity {fields!r:.200} has no host or no port")
        return cls(
            host,
            port,
            fields.get("master_eligibility") is True,
            str(fields.get("scheme") or "http"),
            fields.get("leader") is True,
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """The identity of the writer; None where no member is eligible."""

    error: int = NO_ERROR
    member_id: str | None = None
    writer: Identity | None = None

    def encode(self) -> bytes:
        """Encode the assignment that each member gets."""
        fields: dict[str, object] = {"error": self.error}
        if self.member_id is not None and self.writer is not None:
            fields |= {"master": self.member_id, "master_identity": self.writer.fields()}
        return encode_json({**fields, "version": 1})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the assignment that a member got.

        Raises:
            IdentityError: it is no assignment.
        """
        fields = _object(data)
        identity, member_id = fields.get("master_identity"), fields.get("master")
        error = fields.get("error", NO_ERROR)
        return cls(
            error if isinstance(error, int) else NO_ERROR,
            member_id if isinstance(member_id, str) else None,
            Identity._of(identity) if isinstance(identity, dict) else None,
        )


def elect(members: Mapping[str, Identity]) -> Assignment:
    """Choose the writer: the one before if it is still a member, else the eligible one with the least URL."""
    urls = {each.url for each in members.values()}
    error = NO_ERROR if len(urls) == len(members) else DUPLICATE_URLS
    eligible = {member_id: each for member_id, each in members.items() if each.is_eligible}
    before = [member_id for member_id, each in eligible.items() if each.is_writer]
    if len(before) == 1:
        chosen = before[0]
    elif eligible:
        chosen = min(eligible, key=lambda member_id: eligible[member_id].url)
    else:
        return Assignment(error)
    return Assignment(error, chosen, replace(eligible[chosen], is_writer=False))


def _object(data: bytes) -> dict[str, object]:
    try:
        fields = loads_received(data)
    except ValueError as error:
        raise IdentityError(f"it is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise IdentityError("it is no JSON object")
    return fields
