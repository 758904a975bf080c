"""Passes live messages between the servers of a cluster that have subscribers for them. No I/O.

Every pair of servers has a route in each direction. What goes out on a route is numbered within a session,
which begins with all of the sender's interest: the patterns that its clients subscribe to. A receiver that
does not know a session says so, and the sender begins another one.

A message takes one hop: from the server where it was published to those with interest in its subject, each of
which gets it once, with the queue groups of which it is to serve a member. A local member of a group comes
before those elsewhere, as with nats-server.

Requests for one server, and the answers to them, use the same routes. They are for the server itself.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple
from zlib import crc32

from kalda.common.steps import Steps
from kalda.nats.carried_requests import NOT_SERVED, asking_server
from kalda.nats.exchange import Exchange
from kalda.nats.operations import Publish
from kalda.nats.subject_trie import SubjectTrie

CHANGES_MAX: Final = 5_000
"""Changes of interest in one batch."""

MESSAGES_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 1024 * 1024
"""Of the messages of one batch, unless one is larger."""

SLOW_BYTES: Final = 4 * 1024 * 1024
"""A server that has more bytes waiting gets a group's messages only if no other one has members."""

_MESSAGE_OVERHEAD: Final = 100
_CHANGES_PER_STEP: Final = 8


class InterestChange(NamedTuple):
    """A pattern and queue group that the clients of a server begin or end to subscribe to."""

    subject: bytes
    queue: bytes
    is_on: bool


LIVE: Final = 0
REQUEST: Final = 1
ANSWER: Final = 2


class RoutedMessage(NamedTuple):
    """A message for another server."""

    sent: Publish
    queues: tuple[bytes, ...] = ()
    """The groups of which a member there gets it."""
    route: bytes = b""
    """The subject whose subscribers get it; empty if it is the message's own."""
    kind: int = LIVE
    stream: str = ""
    """The stream of a request whose subject does not name it."""
    principal: str = ""
    host: str = ""
    """Of the client whose rights count for a request."""


class RouteBatch(NamedTuple):
    """Changes of interest and messages that are sent together; the receiver applies the changes first."""

    session: int
    number: int
    """Counts the batches of a session; 0 ends what was known of earlier sessions."""
    changes: Sequence[InterestChange]
    messages: Sequence[RoutedMessage]


class _Remote:
    """The interest of one server in one pattern."""

    __slots__ = ("is_active", "queue", "server", "subject")

    def __init__(self, server: int, subject: bytes, queue: bytes) -> None:
        self.server: Final = server
        self.subject: Final = subject
        self.queue: Final = queue
        self.is_active = True


class OutgoingRoute:
    """The queue of changes and messages for one other server."""

    def __init__(self, interest: Collection[tuple[bytes, bytes]]) -> None:
        """`interest` is the live set of what this server's clients subscribe to."""
        self._interest: Final = interest
        self._changes: Final[dict[tuple[bytes, bytes], bool]] = {}
        self._messages: Final[deque[RoutedMessage]] = deque()
        self._session = 0
        self._number = 0
        self.pending_bytes = 0

    def begin(self, session: int) -> None:
        """Begin a session, which has a new number; messages that wait are sent in it."""
        self._session = session
        self._number = 0
        self._changes.clear()
        self._changes.update(dict.fromkeys(self._interest, True))

    def change(self, subject: bytes, queue: bytes, *, is_on: bool) -> None:
        """Send a change of interest; only the last one of a pattern counts."""
        self._changes[subject, queue] = is_on

    def send(self, message: RoutedMessage) -> None:
        """Send a message."""
        self._messages.append(message)
        self.pending_bytes += _size(message.sent)

    def give_back(self, messages: Sequence[RoutedMessage]) -> None:
        """Put messages that the receiver did not accept back to the front of the queue."""
        for message in reversed(messages):
            self._messages.appendleft(message)
            self.pending_bytes += _size(message.sent)

    def drop_requests(self) -> None:
        """Drop the requests that wait: their clients get an error."""
        kept = [each for each in self._messages if each.kind != REQUEST]
        self.clear()
        self.give_back(kept)

    def drop_changes(self) -> None:
        """Drop the changes of interest that wait: this server closes."""
        self._changes.clear()

    def clear(self) -> int:
        """Drop the messages that wait; return how many those were."""
        count = len(self._messages)
        self._messages.clear()
        self.pending_bytes = 0
        return count

    @property
    def has_work(self) -> bool:
        """Whether changes or messages are queued."""
        return bool(self._changes or self._messages)

    def next(self) -> RouteBatch:
        """Take the next batch; an empty one says that this server is there."""
        changes = [
            InterestChange(subject, queue, is_on)
            for (subject, queue), is_on in islice(self._changes.items(), CHANGES_MAX)
        ]
        for subject, queue, _ in changes:
            del self._changes[subject, queue]
        messages: list[RoutedMessage] = []
        size = 0
        # Those who get a message must know beforehand who wants the answer.
        while not self._changes and self._messages and len(messages) < MESSAGES_MAX:
            own = _size(self._messages[0].sent)
            if messages and size + own > BATCH_BYTES_MAX:
                break
            size += own
            messages.append(self._messages.popleft())
        self.pending_bytes -= size
        number = self._number
        self._number += 1
        return RouteBatch(self._session, number, changes, messages)


class _IncomingRoute:
    """What is known of one other server."""

    def __init__(self, now: float) -> None:
        self.session = 0
        self.number = 0
        self.heard_at = now
        self.interest: Final[dict[tuple[bytes, bytes], _Remote]] = {}


class Routing:
    """The routes of one server."""

    def __init__(self, server: int, exchange: Exchange, choose: Callable[[int], int]) -> None:
        """`choose` returns a random number below its argument, for the servers of queue groups."""
        self._server: Final = server
        self._exchange: Final = exchange
        self._choose: Final = choose
        self._own: Final[dict[tuple[bytes, bytes], None]] = {}
        self._remote: Final[SubjectTrie[_Remote]] = SubjectTrie()
        self._ended: Final[deque[_Remote]] = deque()
        self._outgoing: Final[dict[int, OutgoingRoute]] = {}
        self._incoming: Final[dict[int, _IncomingRoute]] = {}
        self.on_work: Callable[[int], None] = lambda server: None
        """Called when something waits for a server."""
        self.on_ended: Callable[[], None] = lambda: None
        """Called when interest has ended that `remove_ended` has to remove."""
        self.on_interest: Callable[[bytes], None] = lambda subject: None
        """Called with a pattern that clients of another server begin to subscribe to."""
        self.on_carried: Callable[[int, RoutedMessage], None] = self._refuse
        """Called with the requests and answers of a server."""
        self.messages_in = 0
        self.messages_out = 0
        exchange.observe(self)
        exchange.others = self

    # What this server's clients do.

    def interest_begins(self, subject: bytes, queue: bytes) -> None:
        """Announce the change to all servers."""
        self._own[subject, queue] = None
        self._announce(subject, queue, is_on=True)

    def interest_ends(self, subject: bytes, queue: bytes) -> None:
        """Announce the change to all servers."""
        del self._own[subject, queue]
        self._announce(subject, queue, is_on=False)

    def _announce(self, subject: bytes, queue: bytes, *, is_on: bool) -> None:
        for server, route in self._outgoing.items():
            route.change(subject, queue, is_on=is_on)
            self.on_work(server)

    def forward(self, sent: Publish, served: Iterable[bytes], route: bytes = b"") -> bool:
        """Send a message to the servers with subscribers, leaving out some groups; return whether any has."""
        if not len(self._remote):
            return False
        matches = self._remote.match(route or sent.subject)
        if not matches.size:
            return False
        queues: dict[int, tuple[bytes, ...]] = {each.server: () for each in matches.plain if each.is_active}
        for every in matches.groups:
            queue = every[0].queue
            members = [each for each in every if each.is_active]
            if queue in served or not members:
                continue
            members = [each for each in members if not self._is_slow(each.server)] or members
            server = members[self._choose(len(members))].server
            queues[server] = (*queues.get(server, ()), queue)
        for server, own in queues.items():
            self.send_to(server, RoutedMessage(sent, own, route))
        return bool(queues)

    def send_to(self, server: int, message: RoutedMessage) -> None:
        """Send a message to one server, if it is known."""
        outgoing = self._outgoing.get(server)
        if outgoing is not None:
            outgoing.send(message)
            self.messages_out += 1
            self.on_work(server)

    def answer(self, reply: bytes, headers: bytes, payload: bytes) -> bool:
        """Answer a request of another server; return False for the reply subject of a client."""
        server = asking_server(reply)
        if server is None:
            return False
        self.send_to(server, RoutedMessage(Publish(reply, b"", headers, payload), kind=ANSWER))
        return True

    def _refuse(self, server: int, message: RoutedMessage) -> None:
        if message.kind == REQUEST:
            self.answer(message.sent.reply, NOT_SERVED, b"")

    def has_interest(self, subject: bytes) -> bool:
        """Return whether a client of another server is subscribed to a subject."""
        return bool(self._interested(subject))

    def queued_bytes(self, subject: bytes, served: Collection[bytes] = ()) -> int:
        """Return how many bytes wait for the server of a subject that has most of them waiting.

        Of a queue group it is the server that has fewest; groups in `served` do not count.
        """
        if not len(self._remote):
            return 0
        matches = self._remote.match(subject)
        most = max((self._pending(each.server) for each in matches.plain if each.is_active), default=0)
        for members in matches.groups:
            if members[0].queue not in served:
                own = (self._pending(each.server) for each in members if each.is_active)
                most = max(most, min(own, default=0))
        return most

    def _pending(self, server: int) -> int:
        route = self._outgoing.get(server)
        return 0 if route is None else route.pending_bytes

    def _is_slow(self, server: int) -> bool:
        return self._pending(server) > SLOW_BYTES

    def _interested(self, subject: bytes) -> set[int]:
        if not len(self._remote):
            return set()
        matches = self._remote.match(subject)
        return {each.server for each in chain(matches.plain, *matches.groups) if each.is_active}

    def serves(self, subject: bytes, queue: bytes, part: bytes) -> bool:
        """Return whether this server, of all with members of a group, delivers a part of its messages."""
        matches = self._remote.match(subject)
        servers = {
            each.server
            for members in matches.groups
            for each in members
            if each.queue == queue and each.is_active
        }
        if not servers:
            return True
        ordered = sorted(servers | {self._server})
        return ordered[crc32(part) % len(ordered)] == self._server

    # Routes.

    def outgoing(self, server: int) -> OutgoingRoute:
        """Return the route to a server; it is opened with the first call."""
        route = self._outgoing.get(server)
        if route is None:
            route = self._outgoing[server] = OutgoingRoute(self._own)
        return route

    def close(self, server: int) -> None:
        """Forget a server that is gone."""
        self._outgoing.pop(server, None)
        self._forget(server)

    def receive(self, server: int, batch: RouteBatch, now: float) -> Steps[bool]:
        """Take what another server has sent, in steps; the result is False if its session is not known."""
        route = self._incoming.get(server)
        if batch.number == 0:
            self._forget(server)
            route = self._incoming[server] = _IncomingRoute(now)
            route.session = batch.session
        elif route is None or (route.session, route.number) != (batch.session, batch.number):
            self._forget(server)
            return False
        route.number = batch.number + 1
        route.heard_at = now
        for number, change in enumerate(batch.changes, 1):
            self._change(server, route, change)
            if not number % _CHANGES_PER_STEP:
                yield
                if self._incoming.get(server) is not route:
                    return False
        for message in batch.messages:
            self.messages_in += 1
            if message.kind == LIVE:
                takes_queue = message.queues.__contains__
                self._exchange.deliver_here(message.sent, self, takes_queue, message.route)
            else:
                self.on_carried(server, message)
            yield
        return True

    def _change(self, server: int, route: _IncomingRoute, change: InterestChange) -> None:
        key = change.subject, change.queue
        known = route.interest.get(key)
        if change.is_on == (known is not None):
            return
        if known is None:
            known = route.interest[key] = _Remote(server, *key)
            self._remote.add(change.subject, change.queue, known)
            self.on_interest(change.subject)
        else:
            del route.interest[key]
            self._remote.remove(change.subject, change.queue, known)

    def forget_silent(self, before: float) -> list[int]:
        """Forget the interest of servers that have been silent since a time; return these servers."""
        silent = [server for server, route in self._incoming.items() if route.heard_at < before]
        for server in silent:
            self._forget(server)
        return silent

    def _forget(self, server: int) -> None:
        route = self._incoming.pop(server, None)
        if route is not None and route.interest:
            for known in route.interest.values():
                known.is_active = False
            self._ended.extend(route.interest.values())
            self.on_ended()

    def remove_ended(self, count_max: int) -> bool:
        """Remove some of the interest that has ended with its server; return whether there is more."""
        for _ in range(min(count_max, len(self._ended))):
            known = self._ended.popleft()
            self._remote.remove(known.subject, known.queue, known)
        return bool(self._ended)


def _size(sent: Publish) -> int:
    return len(sent.headers) + len(sent.payload) + len(sent.subject) + _MESSAGE_OVERHEAD
