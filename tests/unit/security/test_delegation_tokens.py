"""Delegation tokens: their form in ZooKeeper, who may see and renew them, and when they end."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.cluster.delegation_token_store import DelegationTokenStore, OnToken
from kalda.common.errors import ApiError, ErrorCode
from kalda.runtime.clock import ManualClock
from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.sasl.delegation_token import DelegationToken, password_of
from kalda.security.sasl.mechanism import SCRAM_SHA_256
from kalda.security.sasl.scram import ScramClient, ScramServer
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ConnectionLossError
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper

ALICE, BOB, EVE = (KafkaPrincipal(USER, name) for name in ("alice", "bob", "eve"))
HOUR_MS = 3_600_000
PER_USER_MAX = 3


class Store:
    """Keeps tokens as ZooKeeper would."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}

    async def start(self, on_token: OnToken) -> None:
        for token_id, data in self.written.items():
            on_token(token_id, DelegationToken.from_json(data))

    async def close(self) -> None:
        pass

    async def set(self, token: DelegationToken) -> None:
        self.written[token.token_id] = token.to_json()

    async def delete(self, token_id: str) -> None:
        self.written.pop(token_id, None)


class Broker:
    """The tokens of one broker over a store that others share."""

    def __init__(self, store: Store, clock: ManualClock, **settings: str) -> None:
        properties = {f"delegation.token.{name.replace('_', '.')}": text for name, text in settings.items()}
        properties["kalda.delegation.token.per.user.max"] = str(PER_USER_MAX)
        config = BrokerConfig.from_properties(properties)
        assert isinstance(store, DelegationTokenStore | Store)
        self.tokens = DelegationTokens(config, store, clock, seeded())  # type: ignore[arg-type]  # the same methods


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def tokens(store: Store, clock: ManualClock) -> DelegationTokens:
    return Broker(store, clock, secret_key="shared").tokens


def refused(work: Awaitable[object]) -> ErrorCode:
    async def run() -> None:
        await work

    with pytest.raises(ApiError) as caught:
        asyncio.run(run())
    return caught.value.code


def created(tokens: DelegationTokens, max_lifetime_ms: int = -1) -> DelegationToken:
    return asyncio.run(tokens.create(ALICE, ALICE, (BOB,), max_lifetime_ms))


def test_a_token_is_written_as_kafka_writes_it() -> None:
    owner = KafkaPrincipal(USER, "CN=a b")
    token = DelegationToken("id", owner, ALICE, (BOB,), 1, 3, 2)

    assert {
        "version": 3,
        "owner": "User%3ACN%3Da%20b",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "id",
    } == json.loads(token.to_json())
    assert token == DelegationToken.from_json(token.to_json())
    old = {**json.loads(token.to_json()), "version": 2}
    del old["tokenRequester"]
    assert owner == DelegationToken.from_json(json.dumps(old).encode()).requester


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 3, "owner": 1}', b"[" * 100_000])
def test_a_malformed_token_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        DelegationToken.from_json(data)


def test_a_token_logs_in_as_its_owner_on_each_broker(
    tokens: DelegationTokens, store: Store, clock: ManualClock
) -> None:
    token = created(tokens)
    other = Broker(store, clock, secret_key="shared").tokens
    asyncio.run(other.start())
    client = ScramClient(
        SCRAM_SHA_256, token.token_id, password_of(tokens.secret(token)), "nonce", is_token=True
    )
    server = ScramServer(
        SCRAM_SHA_256, lambda _: None, "other", lambda token_id: other.find(SCRAM_SHA_256, token_id)
    )

    answer = b""
    while not client.is_complete:
        message = client.respond(answer)
        answer = server.respond(message) if message else b""
    assert ALICE == server.principal
    assert server.principal.token_authenticated
    assert token.expires_at_ms == server.expires_at_ms
    clock.advance(25 * 3600)
    assert other.find(SCRAM_SHA_256, token.token_id) is None


def test_tokens_live_as_long_as_settings_and_requests_allow(
    tokens: DelegationTokens, clock: ManualClock
) -> None:
    now_ms = clock.time_ms()
    longest = created(tokens)
    short = created(tokens, HOUR_MS)

    assert (now_ms + 24 * HOUR_MS, now_ms + 168 * HOUR_MS) == (longest.expires_at_ms, longest.max_at_ms)
    assert (now_ms + HOUR_MS, now_ms + HOUR_MS) == (short.expires_at_ms, short.max_at_ms)
    clock.advance(1800)
    assert now_ms + 2 * HOUR_MS // 4 + 24 * HOUR_MS == asyncio.run(
        tokens.renew(BOB, tokens.secret(longest), -1)
    )
    assert short.max_at_ms == asyncio.run(tokens.renew(ALICE, tokens.secret(short), 99 * HOUR_MS))
    assert now_ms + HOUR_MS // 2 + 5 == asyncio.run(tokens.expire(ALICE, tokens.secret(short), 5))
    clock.advance(1)
    assert ErrorCode.DELEGATION_TOKEN_EXPIRED == refused(tokens.renew(ALICE, tokens.secret(short), -1))
    asyncio.run(tokens.delete_ended())
    assert [longest.token_id] == [each.token_id for each in tokens.tokens_of(None)]


def test_only_owner_and_renewers_move_the_end(tokens: DelegationTokens, store: Store) -> None:
    token = created(tokens)
    secret = tokens.secret(token)

    for change in (tokens.renew, tokens.expire):
        call: Callable[[KafkaPrincipal, bytes, int], Awaitable[int]] = change
        assert ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH == refused(call(EVE, secret, 1))
        assert ErrorCode.DELEGATION_TOKEN_NOT_FOUND == refused(call(ALICE, b"x" * 64, 1))
    assert [token] == tokens.tokens_of(None)
    assert [token] == tokens.tokens_of(frozenset({BOB}))
    assert [] == tokens.tokens_of(frozenset({EVE}))
    asyncio.run(tokens.expire(BOB, secret, -1))
    assert ({}, []) == (store.written, tokens.tokens_of(None))


def test_without_a_secret_key_there_are_no_tokens(store: Store, clock: ManualClock) -> None:
    disabled = Broker(store, clock).tokens
    assert ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED == refused(disabled.create(ALICE, ALICE, (), -1))
    assert ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED == refused(disabled.renew(ALICE, b"", -1))
    with pytest.raises(ApiError):
        disabled.tokens_of(None)
    assert Broker(store, clock, master_key="old").tokens.is_enabled


def test_a_user_may_have_a_bounded_number_of_tokens(tokens: DelegationTokens, clock: ManualClock) -> None:
    """Whoever may log in may make tokens, and every broker keeps them all."""
    first = created(tokens)
    for _ in range(PER_USER_MAX - 1):
        created(tokens, HOUR_MS)
    for owner, requester in ((ALICE, ALICE), (EVE, ALICE), (ALICE, EVE)):
        assert ErrorCode.POLICY_VIOLATION == refused(tokens.create(owner, requester, (), -1))
    assert BOB == asyncio.run(tokens.create(BOB, BOB, (), -1)).owner
    clock.advance(3601)
    created(tokens)
    assert 2 == len(tokens.tokens_of(frozenset({ALICE})))
    asyncio.run(tokens.expire(ALICE, tokens.secret(first), -1))
    assert [ALICE] == [each.owner for each in tokens.tokens_of(frozenset({ALICE}))]


async def test_a_token_has_a_bounded_size(clock: ManualClock) -> None:
    """Any user may have a thousand, and with as many renewers as fit into a znode each had 1 MB."""
    store = Store()
    broker = Broker(store, clock, secret_key="k")
    some = tuple(KafkaPrincipal(USER, f"renewer-{number}") for number in range(100))
    token = await broker.tokens.create(ALICE, ALICE, some, 0)
    assert some == token.renewers
    many = tuple(KafkaPrincipal(USER, f"renewer-{number}") for number in range(10_000))
    with pytest.raises(ApiError) as refused:
        await broker.tokens.create(ALICE, ALICE, many, 0)
    assert ErrorCode.POLICY_VIOLATION is refused.value.code
    assert [token.token_id] == list(store.written)


async def test_a_change_reads_the_token_that_changed_and_no_other(clock: ManualClock) -> None:
    """With all tokens read at each change, each new token would cost more than the last."""
    server = InMemoryZooKeeper()
    reader, writer = (await server.cluster()).zookeeper, (await server.cluster()).zookeeper
    store, other = DelegationTokenStore(reader, seeded()), DelegationTokenStore(writer, seeded())
    known: dict[str, DelegationToken | None] = {}
    calls: list[str] = []
    is_complete = asyncio.Event()

    def on_token(token_id: str, token: DelegationToken | None) -> None:
        known[token_id] = token
        calls.append(token_id)
        if len(calls) == 6:
            is_complete.set()

    await store.start(on_token)
    tokens = [DelegationToken(f"id-{n}", ALICE, ALICE, (), 1, 3, 2) for n in range(5)]
    for token in tokens:
        await other.set(token)
    await other.delete("id-0")
    async with asyncio.timeout(60):
        await is_complete.wait()
    assert [*(each.token_id for each in tokens), "id-0"] == calls
    assert {"id-0": None, **{each.token_id: each for each in tokens[1:]}} == known
    await store.close()


def losing_answers(call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """Return a call that has its effect, whose caller does not get to know."""

    async def lost(*arguments: object) -> object:
        await call(*arguments)
        raise ConnectionLossError("the answer was lost")

    return lost


async def test_a_deletion_whose_answer_was_lost_is_known_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt finds no token, and must not leave out the notification for that."""
    server = InMemoryZooKeeper()
    reader, writer = (await server.cluster()).zookeeper, (await server.cluster()).zookeeper
    store, other = DelegationTokenStore(reader, seeded()), DelegationTokenStore(writer, seeded())
    token = DelegationToken("id", ALICE, ALICE, (), 1, 3, 2)
    known: set[str] = set()
    is_deleted = asyncio.Event()

    def on_token(token_id: str, token: DelegationToken | None) -> None:
        if token is None:
            known.discard(token_id)
            is_deleted.set()
        else:
            known.add(token_id)

    await other.start(lambda *_: None)
    await other.set(token)
    await store.start(on_token)
    assert {"id"} == known
    with monkeypatch.context() as patch:
        for name in ("delete", "multi"):
            patch.setattr(type(writer), name, losing_answers(getattr(type(writer), name)))
        with pytest.raises(ConnectionLossError):
            await other.delete("id")
    await other.delete("id")
    async with asyncio.timeout(60):
        await is_deleted.wait()
    assert set() == known
    await store.close()
    await other.close()
