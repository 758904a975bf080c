"""Maps subjects to topics and keys, and back: the rules of `kalda.nats.subjects`.

A rule is ``SUBJECT:TOPIC`` or ``SUBJECT:TOPIC:KEY``. ``$1`` in the topic or the key stands for what the first
wildcard of the subject matched, ``$2`` for the second one, and so on; ``>`` counts as the last wildcard and
stands for all its tokens. Each wildcard is in the topic or the key, so that a record has one subject::

    orders.*:orders:$1          orders.eu        <-> topic orders, key eu
    sensors.*.>:sensors-$1:$2   sensors.lab.a.b  <-> topic sensors-lab, key a.b
    audit:audit                 audit            <-> topic audit, any key

The first rule that fits decides, in both directions.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kalda.nats.subjects import ANY_TOKEN, ANY_TOKENS, is_valid_subject, overlaps

CACHED_SUBJECTS_MAX: Final = 4096
"""Subjects whose topic is remembered; beyond, all of them are forgotten."""

_REFERENCE: Final = re.compile(r"\$([1-9][0-9]?)")
_TOPIC_LETTERS: Final = re.compile(r"[a-zA-Z0-9._-]*")
_TOPIC_LENGTH_MAX: Final = 249
_INTERNAL: Final = "__"
"""Topics whose names begin so hold the state of brokers and tools; no subject leads there."""
_TOKEN_LETTERS: Final = re.compile(rb"[^\s\x00]+")
_RESERVED: Final = (b"$", b"_INBOX")
"""Subjects that begin so are never mapped: those of NATS's own services, and those of answers."""


class SubjectRuleError(ValueError):
    """A rule is malformed."""


class TopicAndKey(NamedTuple):
    """The topic and the key that a subject is mapped to."""

    topic: str
    key: bytes | None
    """None where the rule has no key: a message may bring its own."""
    has_key: bool
    """Whether the rule gives the key."""


class _Template:
    """Text with references to wildcards, which may be filled in or read back."""

    def __init__(self, text: str, wildcards: list[bytes]) -> None:
        self.text: Final = text
        pieces = _REFERENCE.split(text)
        self.references: Final = [int(each) - 1 for each in pieces[1::2]]
        self._pieces: Final = [each.encode() for each in pieces[0::2]]
        pattern = re.escape(self._pieces[0])
        for reference, piece in zip(self.references, self._pieces[1:], strict=True):
            is_rest = reference < len(wildcards) and wildcards[reference] == ANY_TOKENS
            pattern += (rb"(.+)" if is_rest else rb"([^.]+)") + re.escape(piece)
        self._pattern: Final = re.compile(pattern, re.DOTALL)

    @property
    def inner_pieces(self) -> list[bytes]:
        """The literal texts between the references."""
        return self._pieces[1:-1]

    def filled(self, values: list[bytes]) -> bytes:
        """Put the wildcards' values in."""
        parts = [self._pieces[0]]
        for reference, piece in zip(self.references, self._pieces[1:], strict=True):
            parts += (values[reference], piece)
        return b"".join(parts)

    def read(self, text: bytes, values: list[bytes]) -> bool:
        """Read the wildcards' values back; return whether the text fits."""
        found = self._pattern.fullmatch(text)
        if found is None:
            return False
        for reference, value in zip(self.references, found.groups(), strict=True):
            if values[reference] not in (ANY_TOKEN, ANY_TOKENS, value):
                return False
            values[reference] = value
        return True


class SubjectRule:
    """One rule."""

    def __init__(self, text: str) -> None:
        """Parse a rule.

        Raises:
            SubjectRuleError: it is malformed; the message says how.
        """
        self.text: Final = text
        parts = text.split(":")
        if len(parts) not in (2, 3) or not all(parts):
            raise SubjectRuleError(f"{text} is not SUBJECT:TOPIC or SUBJECT:TOPIC:KEY")
        self.subject: Final = parts[0].encode()
        if not is_valid_subject(self.subject) or any(each.isspace() for each in parts[0]):
            raise SubjectRuleError(f"{text}: {parts[0]} is not a subject of NATS")
        if self.subject.startswith(_RESERVED):
            raise SubjectRuleError(f"{text}: subjects that begin with $ or _INBOX are not mapped")
        self._tokens: Final = self.subject.split(b".")
        self._wildcards: Final = [each for each in self._tokens if each in (ANY_TOKEN, ANY_TOKENS)]
        self._topic: Final = _Template(parts[1], self._wildcards)
        self._key: Final = _Template(parts[2], self._wildcards) if len(parts) == 3 else None
        if self._topic.text.startswith(_INTERNAL):
            raise SubjectRuleError(f"{text}: topics whose names begin with __ are those of brokers")
        self._check()

    @property
    def has_key(self) -> bool:
        """Whether the subject gives the key."""
        return self._key is not None

    def _check(self) -> None:
        text = self.text
        if _TOPIC_LETTERS.fullmatch(_REFERENCE.sub("", self._topic.text)) is None:
            raise SubjectRuleError(
                f"{text}: a topic's name has only ASCII letters and digits, '.', '_' and '-', and $1, $2, …"
            )
        templates = [self._topic] if self._key is None else [self._topic, self._key]
        used = [reference for each in templates for reference in each.references]
        for reference in used:
            if reference >= len(self._wildcards):
                raise SubjectRuleError(
                    f"{text}: ${reference + 1}, but the subject has {len(self._wildcards)} wildcards"
                )
        for number in range(len(self._wildcards)):
            if number not in used:
                raise SubjectRuleError(
                    f"{text}: wildcard {number + 1} of the subject is in neither the topic nor the key, so "
                    f"that a record's subject is unknown; add it, e.g. as the key: {text}:${number + 1}"
                )
        if any(b"." not in piece for each in templates for piece in each.inner_pieces):
            raise SubjectRuleError(
                f"{text}: between two wildcards of the topic or the key there must be a '.', which "
                "separates them"
            )

    def to_topic(self, tokens: list[bytes]) -> TopicAndKey | None:
        """Return the topic and the key of a subject; None if the rule does not fit."""
        own = self._tokens
        values = []
        for position, token in enumerate(own):
            if position >= len(tokens):
                return None
            if token == ANY_TOKENS:
                values.append(b".".join(tokens[position:]))
                break
            if token == ANY_TOKEN:
                values.append(tokens[position])
            elif token != tokens[position]:
                return None
        else:
            if len(tokens) != len(own):
                return None
        topic = self._topic.filled(values)
        if len(topic) > _TOPIC_LENGTH_MAX or topic in (b".", b".."):
            return None
        name = topic.decode(errors="replace")
        if name.startswith(_INTERNAL):
            return None
        if _TOPIC_LETTERS.fullmatch(name) is None:
            return None
        key = None if self._key is None else self._key.filled(values)
        return TopicAndKey(name, key, self.has_key)

    def to_subject(self, topic: str, key: bytes | None) -> bytes | None:
        """Return the subject of a record; None if its topic or key does not fit."""
        values = list(self._wildcards)
        if not self._topic.read(topic.encode(), values):
            return None
        if self._key is not None and (key is None or not self._key.read(key, values)):
            return None
        subject = self._filled(values)
        if _TOKEN_LETTERS.fullmatch(subject) is None or not is_valid_subject(subject):
            return None
        # A key of `*` would be a wildcard.
        tokens = subject.split(b".")
        return None if ANY_TOKEN in tokens or ANY_TOKENS in tokens else subject

    def subject_of_topic(self, topic: str) -> bytes | None:
        """Return the pattern of the subjects that a topic's records have; None if it is not this rule's."""
        values = list(self._wildcards)
        return self._filled(values) if self._topic.read(topic.encode(), values) else None

    def _filled(self, values: list[bytes]) -> bytes:
        rest = iter(values)
        wild = (ANY_TOKEN, ANY_TOKENS)
        return b".".join(next(rest) if each in wild else each for each in self._tokens)


class SubjectRules:
    """All rules, in their order."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Parse rules.

        Raises:
            SubjectRuleError: one is malformed.
        """
        self._rules: Final = [SubjectRule(each) for each in texts]
        self._topics: Final[dict[bytes, TopicAndKey | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def to_topic(self, subject: bytes) -> TopicAndKey | None:
        """Return the topic and the key of a subject without wildcards; None if no rule fits."""
        try:
            return self._topics[subject]
        except KeyError:
            pass
        found = self._find(subject)
        if len(self._topics) >= CACHED_SUBJECTS_MAX:
            self._topics.clear()
        self._topics[subject] = None if found is None else found[1]
        return self._topics[subject]

    def _find(self, subject: bytes) -> tuple[SubjectRule, TopicAndKey] | None:
        if subject.startswith(_RESERVED):
            return None
        tokens = subject.split(b".")
        if not all(tokens) or ANY_TOKEN in tokens or ANY_TOKENS in tokens:
            return None
        for rule in self._rules:
            found = rule.to_topic(tokens)
            if found is not None:
                return rule, found
        return None

    def to_subject(self, topic: str, key: bytes | None) -> bytes | None:
        """Return the subject of a record; None if no rule gives it one that leads back to its topic."""
        for rule in self._rules:
            subject = rule.to_subject(topic, key)
            if subject is not None:
                back = self._find(subject)
                if back is not None and back[0] is rule:
                    return subject
        return None

    def may_read(self, topic: str, pattern: bytes) -> bool:
        """Return whether a subscription may get records of a topic."""
        return any(overlaps(each, pattern) for each in self._subjects_of(topic))

    def is_mapped(self, topic: str) -> bool:
        """Return whether any subject leads to a topic."""
        return any(True for _ in self._subjects_of(topic))

    def concerns(self, pattern: bytes) -> bool:
        """Return whether a subscription can match a subject of any rule."""
        return any(overlaps(each.subject, pattern) for each in self._rules)

    def _subjects_of(self, topic: str) -> Iterator[bytes]:
        if topic.startswith(_INTERNAL):
            return
        for rule in self._rules:
            subject = rule.subject_of_topic(topic)
            if subject is not None:
                yield subject
