"""Passes each message to the subscriptions of its subject: live subjects, kept in memory only.

Subscriptions of clients are known to observers, by subject and queue group: who reads topics or other brokers
for them. What comes from there is delivered to clients only, by `deliver_here`; a subscription of the server
itself gets what is published on this server.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Protocol

from kalda.nats.operations import Publish, message_tail
from kalda.nats.subject_trie import Matches, SubjectTrie

RUN_BYTES_MAX: Final = 64 * 1024
"""Of one subscriber's share of a run."""

RUN_BYTES_OF_ALL_MAX: Final = 4 * 1024 * 1024
"""Of a run for all its subscribers."""

SLICE_SUBSCRIPTIONS: Final = 2_000
"""Subscriptions that get a message in one turn of the loop; a delivery takes about a microsecond."""

COPIED_BYTES_MAX: Final = 8 * 1024
"""A larger message is not copied for each subscriber; below, one piece costs less than two."""


class Subscriber(Protocol):
    """The client of a subscription."""

    takes_everything: bool
    """Whether it gets each message of its subscriptions, its own included."""

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        ...

    def deliver(self, subscription: "Subscription", message: "LiveMessage") -> bool:
        """Send a message to the client; return whether it gets it."""
        ...

    def queued_bytes(self) -> int:
        """Return how many bytes wait for the client."""
        ...


class InterestObserver(Protocol):
    """Is notified of the subjects that the clients of an exchange subscribe to."""

    def interest_begins(self, subject: bytes, queue: bytes) -> None:
        """Note that the first client subscribes to a pattern, in a queue group or (empty) without one."""
        ...

    def interest_ends(self, subject: bytes, queue: bytes) -> None:
        """Note that no client is subscribed to a pattern any more."""
        ...


class OtherServers(Protocol):
    """The servers to which messages go as well."""

    def forward(self, sent: Publish, served: Iterable[bytes], route: bytes = b"") -> bool:
        """Send a message to servers with subscribers, leaving out some queue groups; return whether any has.

        `route` is the subject whose subscribers get it, empty if it is the message's own.
        """
        ...

    def has_interest(self, subject: bytes) -> bool:
        """Return whether a client of another server is subscribed to a subject."""
        ...

    def queued_bytes(self, subject: bytes, served: Collection[bytes] = ()) -> int:
        """Return how many bytes wait for the server of a subject that has most of them waiting.

        Of a queue group it is the server that has fewest; groups in `served` do not count.
        """
        ...


class Subscription:
    """One subscription of one client."""

    __slots__ = (
        "delivered",
        "id",
        "is_active",
        "is_client",
        "message_count_max",
        "owner",
        "queue",
        "subject",
    )

    def __init__(
        self,
        owner: Subscriber,
        subject: bytes,
        queue: bytes,
        subscription_id: bytes,
        *,
        is_client: bool = False,
    ) -> None:
        self.owner: Final = owner
        self.subject: Final = subject
        self.queue: Final = queue
        """The queue group; empty without one."""
        self.id: Final = subscription_id
        self.is_client: Final = is_client
        """Whether a client owns it, and not the server itself."""
        self.delivered = 0
        self.message_count_max = 0
        """Ends the subscription when so many messages were delivered; 0 without an end."""
        self.is_active = True


class LiveMessage:
    """A published message on its way to its subscribers; what they get in common is written once."""

    __slots__ = ("_plain_tail", "_tail", "origin", "route", "sent")

    def __init__(self, sent: Publish, origin: object, route: bytes | None = None) -> None:
        self.sent: Final = sent
        self.route: Final = sent.subject if route is None else route
        """The subject that subscribers have subscribed to: a consumer's messages keep their own subject."""
        self.origin: Final = origin
        """The client that published it."""
        self._tail: bytes | None = None
        self._plain_tail: bytes | None = None

    def tail(self, *, has_headers: bool) -> bytes:
        """Return what follows the subscription's id in a MSG, or in an HMSG."""
        if has_headers and self.sent.headers:
            if self._tail is None:
                self._tail = message_tail(self.sent.reply, self.sent.headers, self.sent.payload)
            return self._tail
        if self._plain_tail is None:
            self._plain_tail = message_tail(self.sent.reply, b"", self.sent.payload)
        return self._plain_tail


class _Run:
    """Messages of one client to one subject, one after the other, that are not passed on yet.

    Each subscriber gets them in one piece: what its subscription has in front of each is put between them.
    """

    __slots__ = ("bytes", "heads", "subject", "tails")

    def __init__(self, subject: bytes, heads: Sequence[tuple[Subscription, bytes]]) -> None:
        self.subject: Final = subject
        self.heads: Final = heads
        self.tails: Final = [b""]
        self.bytes = 0


class Exchange:
    """The subscriptions of all clients."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        """`choose` returns a random number below its argument, for the members of queue groups."""
        self._choose: Final = choose
        self._subscriptions: Final[SubjectTrie[Subscription]] = SubjectTrie()
        self._ended: Final[deque[Subscription]] = deque()
        self.is_driven = False
        """Whether a driver calls `end_run` and `next_slice` before it goes on to another client."""
        self.run_bytes_max = RUN_BYTES_MAX
        self._run: _Run | None = None
        self._unfinished: Iterator[None] | None = None
        self.others: OtherServers | None = None
        self._observers: Final[list[InterestObserver]] = []
        self._interest: Final[dict[tuple[bytes, bytes], int]] = {}
        """Subscriptions of clients to each pattern in each queue group; kept while there are observers."""
        self._own_count = 0
        """Subscriptions of the server itself."""
        self._work = 0
        self._is_closing = False
        self.on_added: Callable[[bytes], None] | None = None
        """Called with the subject of each new subscription."""
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        """Of headers and payloads."""
        self.bytes_out = 0

    @property
    def subscription_count(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscriptions) - len(self._ended)

    @property
    def work(self) -> int:
        """Work done since the start, in units of about one delivery; drivers end their turns by it."""
        return self._work + self._subscriptions.visited

    def observe(self, observer: InterestObserver) -> None:
        """Set the observer of the clients' interest; call this before the first subscription."""
        assert not len(self._subscriptions), "an observer came after the first subscription"
        self._observers.append(observer)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription; its subject must be valid."""
        self.end_run()
        self._subscriptions.add(subscription.subject, subscription.queue, subscription)
        if not subscription.is_client:
            self._own_count += 1
        elif self._observers:
            key = subscription.subject, subscription.queue
            count = self._interest[key] = self._interest.get(key, 0) + 1
            if count == 1:
                for observer in self._observers:
                    observer.interest_begins(*key)
        if self.on_added is not None:
            self.on_added(subscription.subject)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self.end_run()
        subscription.is_active = False
        self._subscriptions.remove(subscription.subject, subscription.queue, subscription)
        if not subscription.is_client:
            self._own_count -= 1
        elif self._observers:
            key = subscription.subject, subscription.queue
            count = self._interest[key] = self._interest[key] - 1
            if not count:
                del self._interest[key]
                for observer in self._observers:
                    observer.interest_ends(*key)

    def end(self, subscriptions: Iterable[Subscription]) -> None:
        """Stop delivering to a disconnected client; `remove_ended` removes its subscriptions later."""
        self.end_run()
        for each in subscriptions:
            each.is_active = False
            if not self._is_closing:
                self._ended.append(each)

    def begin_to_close(self) -> None:
        """Prepare for the end of all clients: their subscriptions end with the exchange, not one by one.

        A shutdown with 100,000 of them took seconds, and announced the end of each to other servers.
        """
        self._is_closing = True
        self._ended.clear()

    def remove_ended(self, count_max: int) -> bool:
        """Remove some subscriptions of disconnected clients; return whether more are left."""
        for _ in range(min(count_max, len(self._ended))):
            self.remove(self._ended.popleft())
        return bool(self._ended)

    def subscription_of(self, owner: Subscriber, subject: bytes) -> Subscription | None:
        """Return a subscription of a client that includes the subject, or None."""
        matches = self._subscriptions.match(subject)
        self._work += matches.size
        for each in chain(matches.plain, *matches.groups):
            if each.owner is owner and each.is_active:
                return each
        return None

    def has_interest(self, subject: bytes) -> bool:
        """Return whether there is a subscription for a subject, on this server or another one."""
        matches = self._subscriptions.match(subject)
        self._work += matches.size
        if any(each.is_active for each in chain(matches.plain, *matches.groups)):
            return True
        return self.others is not None and self.others.has_interest(subject)

    def queued_bytes(self, subject: bytes) -> int:
        """Return how many bytes wait for the client or server of a subject that has most of them waiting.

        A queue group that has members here is served here.
        """
        matches = self._subscriptions.match(subject)
        self._work += matches.size
        members = chain(matches.plain, *matches.groups)
        here = max((each.owner.queued_bytes() for each in members if each.is_active), default=0)
        served = [each[0].queue for each in matches.groups if any(member.is_active for member in each)]
        return max(here, self.queued_bytes_elsewhere(subject, served))

    def queued_bytes_elsewhere(self, subject: bytes, served: Collection[bytes] = ()) -> int:
        """Return how many bytes wait for the server of a subject that has most of them waiting."""
        return 0 if self.others is None else self.others.queued_bytes(subject, served)

    def answer(self, sent: Publish, route: bytes = b"") -> bool:
        """Deliver a message of the server itself to clients of all servers; return whether any is subscribed.

        With a route those get it that are subscribed to this subject. A client chose it, or that of the
        message, so that the server itself does not get it: it would be a request that nobody has the rights
        for.
        """
        self.end_run()
        matches = self._subscriptions.match(route or sent.subject)
        self._work += matches.size
        message = LiveMessage(sent, None, route or None)
        count = self._deliver_to_clients(matches.plain, message)
        served: list[bytes] = []
        for members in matches.groups:
            if self._deliver_to_client(members, message):
                count += 1
                served.append(members[0].queue)
        self.messages_out += count
        self.bytes_out += (len(sent.headers) + len(sent.payload)) * count
        return (self.others is not None and self.others.forward(sent, served, route)) or count > 0

    @staticmethod
    def _deliver_to_clients(subscriptions: Sequence[Subscription], message: LiveMessage) -> int:
        # A delivery may end other subscriptions.
        return sum(
            each.owner.deliver(each, message) for each in subscriptions if each.is_client and each.is_active
        )

    def _deliver_to_client(self, members: tuple[Subscription, ...], message: LiveMessage) -> bool:
        members = tuple(each for each in members if each.is_client)
        return bool(members) and self._deliver_to_one(members, message)

    def publish(self, sent: Publish, origin: object) -> bool:
        """Deliver a message; return whether any subscription got it."""
        size = len(sent.headers) + len(sent.payload)
        self.messages_in += 1
        self.bytes_in += size
        if self._run is not None:
            if sent.subject == self._run.subject and not sent.headers and size <= COPIED_BYTES_MAX:
                self._add_to_run(self._run, sent, size)
                return True
            self.end_run()
        matches = self._subscriptions.match(sent.subject)
        self._work += matches.size
        message = LiveMessage(sent, origin)
        count, is_delivered = 0, False
        if len(matches.plain) > SLICE_SUBSCRIPTIONS and self.is_driven:
            self._unfinished = self._deliver_in_slices(matches.plain, message, size)
            next(self._unfinished)
            is_delivered = True
        elif sent.headers or size > COPIED_BYTES_MAX:
            # A delivery may end other subscriptions.
            count = sum(each.owner.deliver(each, message) for each in matches.plain if each.is_active)
        elif self.is_driven and not matches.groups and self._begins_run(matches, sent, size):
            return True
        else:
            count = self._deliver_small(matches, message)
        served: list[bytes] = []
        for members in matches.groups:
            if self._deliver_to_one(members, message):
                count += 1
                served.append(members[0].queue)
        self.messages_out += count
        self.bytes_out += size * count
        if self.others is not None and self.others.forward(sent, served):
            return True
        return is_delivered or count > 0

    # Runs and slices.

    def _begins_run(self, matches: Matches[Subscription], sent: Publish, size: int) -> bool:
        """Begin a run if all subscriptions of a subject just take its messages."""
        heads = self._heads(matches, sent.subject)
        if not heads or not matches.is_kept:
            return False
        for subscription, _ in heads:
            if subscription.message_count_max or not subscription.owner.takes_everything:
                return False
        run = self._run = _Run(sent.subject, heads)
        self._add_to_run(run, sent, size)
        return True

    def _add_to_run(self, run: _Run, sent: Publish, size: int) -> None:
        tail = message_tail(sent.reply, b"", sent.payload)
        run.tails.append(tail)
        count = len(run.heads)
        run.bytes += len(tail) + len(run.heads[0][1])
        self.messages_out += count
        self.bytes_out += size * count
        self._work += count >> 3
        if self.others is not None:
            self.others.forward(sent, ())
        if run.bytes >= self.run_bytes_max or run.bytes * count >= RUN_BYTES_OF_ALL_MAX:
            self.end_run()

    def end_run(self) -> None:
        """Pass on what one client has published in a row; before anything else is sent to clients."""
        run = self._run
        if run is None:
            return
        self._run = None
        count = len(run.tails) - 1
        # Clients number their subscriptions alike, so that many get the same bytes.
        data = head_of_data = b""
        for subscription, head in run.heads:
            # A client that reads too slowly ends during the loop.
            if not subscription.is_active:
                continue
            if head != head_of_data:
                data, head_of_data = head.join(run.tails), head
            subscription.delivered += count
            subscription.owner.send(data)

    def _deliver_in_slices(
        self, subscriptions: Sequence[Subscription], message: LiveMessage, size: int
    ) -> Iterator[None]:
        for number, each in enumerate(subscriptions, 1):
            if each.is_active and each.owner.deliver(each, message):
                self.messages_out += 1
                self.bytes_out += size
            if not number % SLICE_SUBSCRIPTIONS:
                yield

    @property
    def has_run(self) -> bool:
        """Whether messages are not passed on yet."""
        return self._run is not None

    @property
    def has_slices(self) -> bool:
        """Whether some subscribers have not yet received the message that was published last."""
        return self._unfinished is not None

    def take_slices(self) -> Iterator[None]:
        """Return the rest of the last delivery, one step for each slice; its client must wait for the end."""
        rest, self._unfinished = self._unfinished, None
        assert rest is not None, "all subscribers have the message"
        return rest

    def deliver_here(
        self, sent: Publish, origin: object, takes_queue: Callable[[bytes], bool], route: bytes = b""
    ) -> bool:
        """Deliver a message that did not come from a client of this server; return whether any client got it.

        `takes_queue` returns whether a member of a queue group is to get it here. With a route those get it
        that are subscribed to this subject.
        """
        size = len(sent.headers) + len(sent.payload)
        matches = self._subscriptions.match(route or sent.subject)
        self._work += matches.size
        message = LiveMessage(sent, origin, route or None)
        if sent.headers or size > COPIED_BYTES_MAX or self._own_count or route:
            count = self._deliver_to_clients(matches.plain, message)
        else:
            count = self._deliver_small(matches, message)
        for members in matches.groups:
            if takes_queue(members[0].queue):
                count += self._deliver_to_client(members, message)
        self.messages_out += count
        self.bytes_out += size * count
        return count > 0

    @staticmethod
    def _heads(matches: Matches[Subscription], subject: bytes) -> Sequence[tuple[Subscription, bytes]]:
        """Return each plain subscription with what is in front of its messages; remembered if possible."""
        prepared = matches.prepared
        if prepared is None:
            prepared = [(each, b"MSG %b %b" % (subject, each.id)) for each in matches.plain]
            # Those with the same bytes together.
            prepared.sort(key=lambda each: each[1])
            if matches.is_kept:
                matches.prepared = prepared
        assert isinstance(prepared, list), "nobody else prepares matches"
        return prepared

    def _deliver_small(self, matches: Matches[Subscription], message: LiveMessage) -> int:
        """Deliver a message without headers; this loop is what a message costs that has many subscribers."""
        prepared = self._heads(matches, message.sent.subject)
        tail = message.tail(has_headers=False)
        count = 0
        for subscription, head in prepared:
            if not subscription.is_active:
                continue
            owner = subscription.owner
            if owner.takes_everything and not subscription.message_count_max:
                subscription.delivered += 1
                owner.send(head + tail)
                count += 1
            elif owner.deliver(subscription, message):
                count += 1
        return count

    def _deliver_to_one(self, members: tuple[Subscription, ...], message: LiveMessage) -> bool:
        """Deliver to a random member of a queue group, or to the next one that takes it."""
        first = self._choose(len(members))
        for member in members[first:] + members[:first]:
            if member.is_active and member.owner.deliver(member, message):
                return True
        return False
