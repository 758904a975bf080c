"""Defines a webhook's subscription, and reads it from requests and from the topic of subscriptions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kalda.common.json_text import strict_json
from kalda.common.received_json import loads_received
from kalda.http.gateway.streams.conditions import Conditions, parse_conditions
from kalda.http.gateway.webhooks.addresses import ForbiddenAddressError, check_url
from kalda.http.gateway.webhooks.signing import check_secret, new_secret

FORMATS: Final = ("value", "record", "cloudevents", "cloudevents-binary")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_GIVEN: Final = (
    "topic",
    "url",
    "secret",
    "format",
    "from",
    "keys",
    "headers",
    "where",
    "attempts_max",
    "timeout_ms",
    "dead_letter_topic",
)
_VERSION: Final = 1
_OWN_TOPICS: Final = ("__", "_kalda", "_schemas")
"""Topics of Kafka, Kalda and the registry begin so; they would take a dead letter for a record of theirs."""


class InvalidSubscriptionError(ValueError):
    """A subscription is not allowed; the message has the field."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a webhook: the records that it sends, and the URL."""

    name: str
    topic: str
    url: str
    secret: str
    principal: str
    """Who made it."""
    format: str = "record"
    begin: str = "end"
    """Where the group begins that has no offsets yet: ``beginning`` or ``end``."""
    keys: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    attempts_max: int = 10
    timeout_ms: int = 10_000
    dead_letter_topic: str = ""

    @property
    def conditions(self) -> Conditions:
        """The conditions that records must meet to be sent."""
        return parse_conditions(self.keys, self.headers, self.where)

    @property
    def has_own_dead_letter_topic(self) -> bool:
        """Whether the caller has chosen the topic of dead letters."""
        return self.dead_letter_topic != _usual_dead_letter_topic(self.topic)

    @property
    def group(self) -> str:
        """The group whose members share the topic's partitions."""
        return f"kalda-webhook-{self.name}"

    def shown(self) -> dict[str, Any]:
        """Return the fields that a caller may see: all but the secret."""
        return {
            "name": self.name,
            "topic": self.topic,
            "url": self.url,
            "principal": self.principal,
            "format": self.format,
            "from": self.begin,
            "keys": list(self.keys),
            "headers": list(self.headers),
            "where": list(self.where),
            "attempts_max": self.attempts_max,
            "timeout_ms": self.timeout_ms,
            "dead_letter_topic": self.dead_letter_topic,
            "group": self.group,
        }

    def encode(self) -> bytes:
        """Return the value of the subscription's record."""
        kept = {name: value for name, value in self.shown().items() if name not in ("name", "group")}
        return strict_json({"version": _VERSION, **kept, "secret": self.secret}).encode()


def read_subscription(name: str, given: Mapping[str, Any], principal: str) -> Subscription:
    """Return the subscription that a request or a record describes; a secret is made where none is given.

    Raises:
        InvalidSubscriptionError: a field is missing, unknown or not allowed.
    """
    if not _NAME.fullmatch(name):
        raise InvalidSubscriptionError(f"name {name!r:.120} is not allowed: 1 to 100 of A-Z a-z 0-9 . _ -")
    for field in given:
        if field not in _GIVEN:
            raise InvalidSubscriptionError(f"{field!r:.80} is no field; the fields are {', '.join(_GIVEN)}")
    try:
        subscription = Subscription(
            name,
            _topic(given, "topic", None),
            check_url(given.get("url")),
            check_secret(given["secret"]) if "secret" in given else new_secret(),
            principal,
            _word(given, "format", "record", FORMATS),
            _word(given, "from", "end", ("beginning", "end")),
            _texts(given, "keys"),
            _texts(given, "headers"),
            _texts(given, "where"),
            _number(given, "attempts_max", 10, 1, 100),
            _number(given, "timeout_ms", 10_000, 100, 60_000),
            _topic(given, "dead_letter_topic", _usual_dead_letter_topic(given.get("topic"))),
        )
        subscription.conditions  # noqa: B018  # raises for what is no condition
    except (ForbiddenAddressError, ValueError) as error:
        raise InvalidSubscriptionError(str(error)) from None
    if subscription.dead_letter_topic == subscription.topic:
        raise InvalidSubscriptionError("dead_letter_topic is the topic itself, which would never end")
    if subscription.dead_letter_topic.startswith(_OWN_TOPICS):
        raise InvalidSubscriptionError(
            f"dead_letter_topic={subscription.dead_letter_topic!r:.80} is not allowed: topics that begin "
            f"with {', '.join(_OWN_TOPICS)} are not for dead letters"
        )
    return subscription


def check_no_loop(subscription: Subscription, others: Iterable[Subscription]) -> None:
    """Check that no dead letter of a webhook comes back to its topic as a dead letter of other webhooks.

    Raises:
        InvalidSubscriptionError: one would: it would be sent, and written again, without an end.
    """
    following: dict[str, set[str]] = {}
    for each in others:
        if each.name != subscription.name:
            following.setdefault(each.topic, set()).add(each.dead_letter_topic)
    reached = [subscription.dead_letter_topic]
    seen = set(reached)
    while reached:
        topic = reached.pop()
        if topic == subscription.topic:
            raise InvalidSubscriptionError(
                f"dead_letter_topic={subscription.dead_letter_topic!r:.80} leads back to topic {topic} by "
                "the dead letters of other webhooks, which would never end"
            )
        new = following.get(topic, set()) - seen
        seen |= new
        reached.extend(new)


def decode_subscription(name: str, value: bytes) -> Subscription | None:
    """Return the subscription of a record; None if it is of another kind."""
    try:
        document = loads_received(value)
        if document.pop("version") != _VERSION:
            return None
        principal = document.pop("principal")
        return read_subscription(name, document, str(principal))
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


def _usual_dead_letter_topic(topic: object) -> str:
    return f"{topic}-webhook-dlq"


def _topic(given: Mapping[str, Any], field: str, default: str | None) -> str:
    value = given.get(field, default)
    if not isinstance(value, str) or not _TOPIC.fullmatch(value) or value in (".", ".."):
        raise InvalidSubscriptionError(f"{field}={value!r:.80} is not the name of a topic")
    return value


def _word(given: Mapping[str, Any], field: str, default: str, words: tuple[str, ...]) -> str:
    value = given.get(field, default)
    if value not in words:
        raise InvalidSubscriptionError(f"{field}={value!r:.80} is not allowed: one of {', '.join(words)}")
    return str(value)


def _texts(given: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = given.get(field, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidSubscriptionError(f"{field} is no array of texts")
    return tuple(value)


def _number(given: Mapping[str, Any], field: str, default: int, low: int, high: int) -> int:
    value = given.get(field, default)
    if type(value) is not int or not low <= value <= high:
        raise InvalidSubscriptionError(
            f"{field}={value!r:.80} is not allowed: a whole number from {low} to {high}"
        )
    return value
