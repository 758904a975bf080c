"""Finds the subscriptions of a subject with a trie of tokens.

Each level has the literal tokens by name and, apart from them, the wildcards: a message that is published to
the subject `a.*` is for `a.*` and `a.>`, not for `a.b`. All walks are loops: a client chooses the depth.
"""

from typing import Final, Generic, TypeVar

from kalda.nats.subjects import ANY_TOKEN, ANY_TOKENS

S = TypeVar("S")

CACHE_ENTRIES_MAX: Final = 1024
"""Subjects whose subscriptions are remembered; a change of any subscription forgets all of them."""

CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
"""About the memory that they take, with what is prepared for each subscription; one subject takes up to a
quarter."""

_BYTES_PER_SUBSCRIPTION: Final = 150
"""Without the subject, which a user of the trie may write for each subscription."""


class Matches(Generic[S]):
    """The subscriptions of one subject, in no particular order."""

    __slots__ = ("groups", "is_kept", "plain", "prepared", "size")

    def __init__(self, plain: tuple[S, ...], groups: tuple[tuple[S, ...], ...]) -> None:
        self.size: Final = len(plain) + sum(map(len, groups))
        """The number of subscriptions, with all members of groups."""
        self.is_kept = False
        """Whether the trie remembers this; otherwise nothing should be prepared."""
        self.prepared: object = None
        """What a user of the trie has made of `plain`; it is forgotten with the matches."""
        self.plain: Final = plain
        """The subscriptions that get each message."""
        self.groups: Final = groups
        """The members of each queue group, of which one gets the message."""


class _Node(Generic[S]):
    __slots__ = ("any_token", "any_tokens", "groups", "literal", "plain")

    def __init__(self) -> None:
        self.literal: Final[dict[bytes, _Node[S]]] = {}
        self.any_token: _Node[S] | None = None
        self.any_tokens: _Node[S] | None = None
        self.plain: Final[dict[S, None]] = {}
        self.groups: Final[dict[bytes, dict[S, None]]] = {}

    def is_empty(self) -> bool:
        return not (self.literal or self.any_token or self.any_tokens or self.plain or self.groups)

    def child(self, token: bytes) -> "_Node[S] | None":
        if token == ANY_TOKEN:
            return self.any_token
        return self.any_tokens if token == ANY_TOKENS else self.literal.get(token)

    def make_child(self, token: bytes) -> "_Node[S]":
        node = self.child(token)
        if node is None:
            node = _Node()
            self.set_child(token, node)
        return node

    def set_child(self, token: bytes, node: "_Node[S] | None") -> None:
        if token == ANY_TOKEN:
            self.any_token = node
        elif token == ANY_TOKENS:
            self.any_tokens = node
        elif node is None:
            del self.literal[token]
        else:
            self.literal[token] = node


class SubjectTrie(Generic[S]):
    """Subscriptions by the pattern of their subject."""

    def __init__(self) -> None:
        self._root: Final[_Node[S]] = _Node()
        self._cache: Final[dict[bytes, Matches[S]]] = {}
        self._cache_bytes = 0
        self._count = 0
        self.visited = 0
        """Nodes that `match` has looked at since the start: where many patterns overlap they are its cost."""

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: bytes, queue: bytes, subscription: S) -> None:
        """Add a subscription to a valid pattern; `queue` is its group, empty without one."""
        node = self._root
        for token in pattern.split(b"."):
            node = node.make_child(token)
        members = node.groups.setdefault(queue, {}) if queue else node.plain
        assert subscription not in members, f"a subscription to {pattern!r} is added twice"
        members[subscription] = None
        self._count += 1
        self._forget()

    def remove(self, pattern: bytes, queue: bytes, subscription: S) -> None:
        """Remove a subscription that was added, and the levels that nothing else needs."""
        node = self._root
        path = []
        for token in pattern.split(b"."):
            path.append((node, token))
            child = node.child(token)
            assert child is not None, f"no subscription to {pattern!r}"
            node = child
        members = node.groups[queue] if queue else node.plain
        del members[subscription]
        if queue and not members:
            del node.groups[queue]
        for parent, token in reversed(path):
            child = parent.child(token)
            assert child is not None
            if not child.is_empty():
                break
            parent.set_child(token, None)
        self._count -= 1
        self._forget()

    def match(self, subject: bytes) -> Matches[S]:
        """Return the subscriptions that match a subject; none if it has empty tokens."""
        found = self._cache.get(subject)
        if found is None:
            found = self._match(subject)
            needed = (found.size + 1) * (len(subject) + _BYTES_PER_SUBSCRIPTION)
            if needed > CACHE_BYTES_MAX // 4:
                return found
            self._cache_bytes += needed
            if len(self._cache) >= CACHE_ENTRIES_MAX or self._cache_bytes > CACHE_BYTES_MAX:
                self._forget()
                self._cache_bytes = needed
            self._cache[subject] = found
            found.is_kept = True
        return found

    def _forget(self) -> None:
        self._cache.clear()
        self._cache_bytes = 0

    def _match(self, subject: bytes) -> Matches[S]:
        tokens = subject.split(b".")
        found: list[_Node[S]] = []
        # No more nodes than the trie has at this depth.
        level = [self._root]
        if not all(tokens):
            level = []
        for token in tokens:
            following = []
            self.visited += len(level)
            for node in level:
                if node.any_tokens is not None:
                    found.append(node.any_tokens)
                if node.any_token is not None:
                    following.append(node.any_token)
                child = node.literal.get(token)
                if child is not None:
                    following.append(child)
            level = following
            if not level:
                break
        found += level
        plain: list[S] = []
        groups: dict[bytes, list[S]] = {}
        for node in found:
            plain += node.plain
            for queue, members in node.groups.items():
                groups.setdefault(queue, []).extend(members)
        return Matches(tuple(plain), tuple(map(tuple, groups.values())))
