"""Access lists: who is who, what is a valid list, and what each operation needs."""

import pytest

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    InvalidAclError,
    NoAuthError,
    NoNodeError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Check, Create, Delete, SetData, Stat
from kalda.zookeeper.server.acl import (
    ADMIN,
    READ,
    SUPER,
    WRITE,
    Identity,
    Permission,
    authenticate,
    check_permission,
    normalise_acl,
)
from kalda.zookeeper.server.authentication import Authentication
from kalda.zookeeper.server.data_tree import CONFIG_PATH, DataTree
from kalda.zookeeper.server.processor_requests import (
    Created,
    CreateNode,
    Multi,
    NodeOperation,
    Read,
    Request,
    SetAcl,
)
from kalda.zookeeper.server.txns import OPEN_ACL
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem

HASH = "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E="
ALICE = Identity("digest", HASH)
LOCAL = Identity("ip", "127.0.0.1")
NOBODY = (LOCAL,)


def digest(permissions: int = 31) -> Acl:
    return Acl(permissions, "digest", HASH)


def test_digest_is_that_of_zookeeper() -> None:
    """Lists hold the hash, so another hash would lock everybody out who moves from a ZooKeeper."""
    assert ALICE == authenticate("digest", b"alice:secret", "127.0.0.1")
    # From ZooKeeper's own documentation of its generator.
    assert "super:D/InIHSb7yEEbrWz8b9l71RjZJU=" == authenticate("digest", b"super:test", "").id


def test_address_is_the_peer_and_not_what_it_claims() -> None:
    assert LOCAL == authenticate("ip", b"10.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(("scheme", "auth"), [("sasl", b"x"), ("world", b"anyone"), ("digest", b"\xff:x")])
def test_what_proves_nothing_is_refused(scheme: str, auth: bytes) -> None:
    with pytest.raises(AuthFailedError):
        authenticate(scheme, auth, "127.0.0.1")


@pytest.mark.parametrize(
    ("entry", "address", "is_match"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.0/8", "127.200.0.1", True),
        ("127.0.0.77/8", "127.200.0.1", True),
        ("10.1.0.0/15", "10.0.255.1", True),
        ("10.1.0.0/16", "10.0.255.1", False),
        ("0.0.0.0/0", "8.8.8.8", True),
        ("0.0.0.0/0", "::1", False),
        ("fe80::/10", "fe80::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("127.0.0.1", "not an address", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "::ffff:11.0.0.1", False),
    ],
)
def test_addresses_and_networks(entry: str, address: str, is_match: bool) -> None:
    acl = (Acl(READ, "ip", entry),)
    identities = (Identity("ip", address),)
    if is_match:
        check_permission(acl, READ, identities)
        return
    with pytest.raises(NoAuthError):
        check_permission(acl, READ, identities)


def test_permissions_are_granted_one_by_one() -> None:
    acl = (Acl(READ | WRITE, "world", "anyone"), digest(ADMIN))
    check_permission(acl, READ, ())
    check_permission(acl, WRITE, NOBODY)
    check_permission(acl, ADMIN, (LOCAL, ALICE))
    for identities in ((), NOBODY, (Identity("digest", "alice:other"),)):
        with pytest.raises(NoAuthError):
            check_permission(acl, ADMIN, identities)
    with pytest.raises(NoAuthError):
        check_permission(acl, Permission.CREATE, (ALICE,))


def test_nothing_is_forbidden_to_the_super_user_and_to_this_process() -> None:
    acl = (digest(READ),)
    check_permission(acl, ADMIN, (SUPER,))
    check_permission(acl, ADMIN, None)
    by_packet = Authentication(super_digest=HASH).by_auth_packet
    assert (ALICE, SUPER) == by_packet("digest", b"alice:secret", "127.0.0.1")
    assert (Identity("ip", HASH),) == by_packet("ip", b"", HASH)
    assert (ALICE,) == Authentication().by_auth_packet("digest", b"alice:secret", "127.0.0.1")


def test_unknown_scheme_of_a_list_grants_nothing() -> None:
    """One out of a ZooKeeper's log, of a provider of its own, must not become open."""
    with pytest.raises(NoAuthError):
        check_permission((Acl(31, "uri", "alice"),), READ, (Identity("sasl", "alice"),))


def test_sasl_and_certificates_grant_by_equal_names() -> None:
    subject = "CN=alice,O=Acme"
    check_permission((Acl(31, "sasl", "alice"),), READ, (Identity("sasl", "alice"),))
    check_permission((Acl(31, "x509", subject),), READ, (Identity("x509", subject),))
    # As in ZooKeeper, the SASL user super is meant by every entry of that scheme.
    check_permission((Acl(31, "sasl", "alice"),), READ, (Identity("sasl", "super"),))
    for identity in (Identity("sasl", "bob"), Identity("x509", "super"), Identity("digest", "alice")):
        with pytest.raises(NoAuthError):
            check_permission((Acl(31, "sasl", "alice"), Acl(31, "x509", subject)), READ, (identity,))


@pytest.mark.parametrize(
    ("entry", "is_valid"),
    [
        (Acl(31, "sasl", "alice"), True),
        (Acl(31, "sasl", "kafka/host@REALM"), True),
        (Acl(31, "sasl", "a@b@c"), False),
        (Acl(31, "x509", "CN=alice,O=Acme"), True),
        (Acl(31, "x509", 'CN=a\\,b, O="Acme, Inc" + OU=x'), True),
        (Acl(31, "x509", "alice"), False),
    ],
)
def test_entries_of_schemes_that_are_served_are_checked(entry: Acl, is_valid: bool) -> None:
    schemes = frozenset(("digest", "ip", "sasl", "x509"))
    if is_valid:
        assert (entry,) == normalise_acl((entry,), NOBODY, None, schemes)
    else:
        with pytest.raises(InvalidAclError):
            normalise_acl((entry,), NOBODY, None, schemes)


def test_auth_stands_for_who_asks() -> None:
    bob = Identity("digest", "bob:x")
    assert normalise_acl((Acl(3, "auth", ""), Acl(1, "world", "anyone")), (LOCAL, ALICE, bob)) == (
        digest(3),
        Acl(3, "digest", "bob:x"),
        Acl(1, "world", "anyone"),
    )


def test_repetitions_are_dropped() -> None:
    assert OPEN_ACL == normalise_acl(OPEN_ACL * 3, NOBODY)


@pytest.mark.parametrize(
    "acl",
    [
        (),
        (Acl(31, "auth", ""),),
        (Acl(31, "world", "somebody"),),
        (Acl(31, "digest", "no-colon"),),
        (Acl(31, "digest", "alice:"),),
        (Acl(31, "digest", "a:b:c"),),
        (Acl(31, "ip", "300.0.0.1"),),
        (Acl(31, "ip", "10.0.0.0/33"),),
        (Acl(31, "ip", "10.0.0.0/"),),
        (Acl(31, "ip", "10.0.0.0/255.0.0.0"),),
        (Acl(31, "sasl", "alice"),),
        (Acl(31, "super", ""),),
        (*OPEN_ACL, Acl(31, "", "")),
    ],
)
def test_invalid_lists_are_refused(acl: tuple[Acl, ...]) -> None:
    """A list nobody can match would lock the znode for good."""
    with pytest.raises(InvalidAclError):
        normalise_acl(acl, NOBODY)
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    for operation in (CreateNode("/a", acl=acl), SetAcl("/", acl)):
        assert isinstance(ask(bench, session, operation), InvalidAclError)


def ask(bench: Bench, session: int, operation: NodeOperation | Multi, *identities: Identity) -> object:
    """Do it as a client that is nothing but its address and these."""
    outcomes: list[object] = []
    bench.server.submit(Request(session, operation, outcomes.append, 0, (LOCAL, *identities)))
    bench.settle()
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(
    ("operation", "permissions"),
    [
        (Create("/a/new"), Permission.CREATE),
        (CreateNode("/a/new"), Permission.CREATE),
        (SetData("/a", b""), Permission.WRITE),
        (Delete("/a/child"), Permission.DELETE),
        (SetAcl("/a", OPEN_ACL), Permission.ADMIN),
        (Check("/a", 0), Permission.READ),
    ],
)
def test_each_operation_needs_its_own_permission(operation: NodeOperation, permissions: int) -> None:
    """And no other: creation and deletion are the parent's to grant."""
    everything = int(Permission.ALL)
    for granted, is_allowed in ((permissions, True), (everything & ~permissions, False)):
        for as_part_of_multi in (False, not isinstance(operation, SetAcl)):
            bench = Bench(MemoryFileSystem())
            session = bench.session()
            bench.do(session, CreateNode("/a", acl=(digest(granted),)))
            bench.do(session, CreateNode("/a/child", acl=(digest(0),)))
            request = Multi([operation]) if as_part_of_multi else operation
            assert isinstance(ask(bench, session, request), NoAuthError)
            outcome = ask(bench, session, request, ALICE)
            assert isinstance(outcome, list if is_allowed else NoAuthError)


def test_changed_list_holds_for_what_is_pipelined_behind_it() -> None:
    """It is on its way to the disk, and so must count already."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.do(session, Create("/a"))
    outcomes: list[object] = []
    for operation in (
        SetAcl("/a", (digest(),)),
        SetData("/a", b"x"),
        Create("/a/b"),
        SetAcl("/a", OPEN_ACL, 0),
    ):
        bench.server.submit(Request(session, operation, outcomes.append, 0, NOBODY))
    bench.settle()
    assert isinstance(outcomes[0], list)
    assert [NoAuthError, NoAuthError, NoAuthError] == [type(outcome) for outcome in outcomes[1:]]


def test_version_of_the_list_is_compared_and_counted() -> None:
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.do(session, Create("/a"))
    outcome = ask(bench, session, SetAcl("/a", (*OPEN_ACL, digest()), 0))
    assert isinstance(outcome, list)
    stat = outcome[0]
    assert isinstance(stat, Stat)
    assert (stat.aversion, stat.version, stat.mzxid) == (1, 0, stat.czxid)
    assert isinstance(ask(bench, session, SetAcl("/a", OPEN_ACL, 0)), BadVersionError)
    assert isinstance(ask(bench, session, SetAcl("/missing", OPEN_ACL)), NoNodeError)
    acl = bench.do(session, Read(lambda tree, watches: tree.acl("/a")))
    assert acl == (*OPEN_ACL, digest())


def test_list_cannot_be_changed_inside_a_multi() -> None:
    """ZooKeeper has no such multi, and could not read its record."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    outcome = bench.multi(session, Create("/a"), SetAcl("/a", OPEN_ACL))
    assert isinstance(outcome, BadArgumentsError)
    assert 1 == outcome.operation_index
    assert {} == bench.tree()


def test_servers_own_configuration_is_read_only() -> None:
    bench = Bench(MemoryFileSystem())
    outcome = ask(bench, bench.session(), SetData(CONFIG_PATH, b""))
    assert isinstance(outcome, NoAuthError)


def test_lists_survive_a_restart_and_are_kept_once() -> None:
    """Ten thousand topics have the same list; it is one object in memory and one entry in the snapshot."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    for name in "abc":
        outcome = ask(bench, session, CreateNode(f"/{name}", acl=(digest(1), digest(2))), ALICE)
        assert isinstance(outcome, list)
        assert isinstance(outcome[0], Created)
    for _ in range(2):
        files.crash(lambda size: 0)
        bench = Bench(files)
        nodes = DataTree.restore(bench.server.freeze()).nodes
        assert nodes["/a"].acl == (digest(1), digest(2))
        assert nodes["/a"].acl is nodes["/b"].acl is nodes["/c"].acl
        bench.server.snapshot()


def test_errors_carry_zookeepers_codes() -> None:
    kinds: list[type[ZooKeeperError]] = [NoAuthError, InvalidAclError, AuthFailedError]
    assert [-102, -114, -115] == [kind.code for kind in kinds]
