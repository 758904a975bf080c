"""Session time-outs: buckets, what is not held against clients, passwords; files; settings of zoo.cfg."""

from pathlib import Path

import pytest

from kalda.common.config_def import ConfigError, MissingFeatureError
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.zookeeper.server.config import FOUR_LETTER_WORDS, ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer
from kalda.zookeeper.server.session_passwords import load_passwords
from kalda.zookeeper.server.session_tracker import SessionTracker, negotiate_timeout, session_password
from tests.runtimes import seeded
from tests.unit.zookeeper.memory_files import MemoryFileSystem


def due(tracker: SessionTracker, reading_ms: float) -> list[int]:
    return [session_id for session_id, _ in tracker.advance(reading_ms)]


def advance_to(tracker: SessionTracker, start_ms: int, end_ms: int) -> dict[int, int]:
    """Take a reading every 100 ms; return when each session was due."""
    ended: dict[int, int] = {}
    for reading in range(start_ms, end_ms + 1, 100):
        ended |= dict.fromkeys(due(tracker, reading), reading)
    return ended


def test_session_is_due_after_its_time_out_and_at_most_one_bucket_late() -> None:
    """Failover begins when a dead broker's session ends; a live one's must not end before."""
    tracker = SessionTracker(500)
    tracker.advance(0)
    tracker.add(1, 2000)
    tracker.add(2, 2600)
    assert {1: 2500, 2: 3000} == advance_to(tracker, 0, 4000)
    assert 0 == len(tracker)


def test_session_that_is_heard_of_lives_on() -> None:
    tracker = SessionTracker(500)
    tracker.advance(0)
    tracker.add(1, 1000)
    for reading in range(0, 10_000, 500):
        assert [] == due(tracker, reading)
        tracker.touch(1)
    assert {1: 11_000} == advance_to(tracker, 9500, 12_000)


def test_time_in_which_the_server_stood_still_is_not_held_against_clients() -> None:
    """After SIGSTOP and SIGCONT the clients' heartbeats wait in the sockets: they are read first."""
    tracker = SessionTracker(500)
    tracker.advance(0)
    tracker.add(1, 2000)
    tracker.advance(500)
    assert [] == due(tracker, 60_000)
    tracker.touch(1)
    assert {1: 62_500} == advance_to(tracker, 60_000, 63_000)


def test_session_taken_up_with_another_time_out_has_all_of_it() -> None:
    tracker = SessionTracker(500)
    tracker.advance(0)
    tracker.add(1, 1000)
    tracker.add(1, 4000)
    assert 4000 == tracker.timeout_ms(1)
    assert [(4500, [1])] == tracker.deadlines()
    assert {1: 4500} == advance_to(tracker, 0, 5000)


def test_session_that_is_over_is_not_due_and_cannot_be_touched() -> None:
    tracker = SessionTracker(500)
    tracker.advance(0)
    tracker.add(1, 1000)
    tracker.remove(1)
    tracker.remove(1)
    tracker.touch(1)
    assert 1 not in tracker
    assert [] == tracker.deadlines()
    assert {} == advance_to(tracker, 0, 3000)


def test_due_sessions_come_with_their_time_outs() -> None:
    tracker = SessionTracker(100)
    tracker.advance(0)
    tracker.add(7, 300)
    tracker.add(3, 300)
    assert [] == tracker.advance(200)
    assert [(3, 300), (7, 300)] == tracker.advance(400)
    assert [] == tracker.advance(400)


def test_buckets_are_never_wider_than_half_a_second() -> None:
    assert 500 == SessionTracker(3000).bucket_ms
    assert 200 == SessionTracker(200).bucket_ms


def test_password_of_zookeeper_is_that_of_javas_generator() -> None:
    """Sessions in a directory that ZooKeeper wrote can be taken up; the bytes are of Java's Random."""
    password = session_password(42 ^ 0xB3415C00)
    assert 16 == len(password)
    # The constant cancels out: this is the generator seeded with 42, whose first ints are well known.
    first = int.from_bytes(password[:4], "little", signed=True)
    second = int.from_bytes(password[4:8], "little", signed=True)
    assert (-1170105035, 234785527) == (first, second)


def test_password_depends_on_the_servers_secret_and_on_the_session() -> None:
    """Anyone can read the id of a session, so it must not be enough to take the session over."""
    files = MemoryFileSystem()
    first, other = (
        load_passwords(files, seeded(), "/a/secret", 0),
        load_passwords(files, seeded(1), "/b/secret", 0),
    )
    again = load_passwords(files, seeded(), "/a/secret", 7)
    assert 16 == len(first.of(1))
    assert first.of(1) == again.of(1)
    assert 4 == len({first.of(1), first.of(2), other.of(1), session_password(1)})
    assert first.is_right(1, again.of(1))
    assert not any(first.is_right(1, wrong) for wrong in (first.of(2), bytes(16), b"", None))


@pytest.mark.parametrize("newest", [5, -0x7F00000000000001])
def test_sessions_from_before_the_secret_keep_their_passwords(newest: int) -> None:
    """A ZooKeeper with a server id above 127 hands out negative session ids."""
    passwords = load_passwords(MemoryFileSystem(), seeded(), "/secret", newest)
    assert session_password(newest) == passwords.of(newest)
    assert session_password(newest + 1) != passwords.of(newest + 1)


def test_damaged_secret_is_replaced_and_stops_no_start(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFileSystem()
    files.replace("/secret", b"short", sync=True)
    assert load_passwords(files, seeded(), "/secret", 0).of(1) == load_passwords(
        files, seeded(), "/secret", 0
    ).of(1)
    files = MemoryFileSystem()
    files.room = 0
    load_passwords(files, seeded(), "/secret", 0)
    assert "the secret of the sessions is lost at the end" in caplog.text


def test_files_of_the_coordination_server_are_for_their_owner(tmp_path: Path) -> None:
    """Its log and snapshots have the salted passwords of users, also those that an earlier release wrote."""
    (tmp_path / "version-2").mkdir(mode=0o755)
    server = EmbeddedServer(
        str(tmp_path),
        filesystem=OsFileSystem(is_private=True),
        executor=InlineExecutor(),
        clock=ManualClock(),
    )
    server.start()
    assert 0o700 == (tmp_path / "version-2").stat().st_mode & 0o777
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert "session-secret" in {path.name for path in files}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in files}


@pytest.mark.parametrize(("asked", "granted"), [(-5, 1000), (0, 1000), (2000, 2000), (90_000, 60_000)])
def test_time_out_is_what_is_asked_for_within_the_limits(asked: int, granted: int) -> None:
    assert granted == negotiate_timeout(asked, 1000, 60_000)


def test_settings_have_defaults_and_follow_the_tick() -> None:
    config = ZooKeeperConfig.from_properties({})
    assert ZooKeeperConfig() == config
    assert 1000 == config.session_timeout_ms_min
    assert 60_000 == config.session_timeout_ms_max
    ticks = ZooKeeperConfig.from_properties({"tickTime": "2000", "minSessionTimeout": "-1"})
    assert (4000, 40_000) == (ticks.session_timeout_ms_min, ticks.session_timeout_ms_max)


def test_settings_are_read() -> None:
    config = ZooKeeperConfig.from_properties(
        {
            "dataDir": "/data",
            "clientPort": "0",
            "initLimit": "5",
            "syncLimit": "2",
            "maxClientCnxns": "0",
            "jute.maxbuffer": "2048",
            "autopurge.snapRetainCount": "5",
            "autopurge.purgeInterval": "1",
            "forceSync": "no",
            "4lw.commands.whitelist": "*",
            "DigestAuthenticationProvider.superDigest": "super:hash",
        }
    )
    assert "/data" == config.data_dir
    assert frozenset(FOUR_LETTER_WORDS) == config.four_letter_words
    assert (0, 2048, False) == (config.connections_per_host_max, config.frame_bytes_max, config.sync)
    assert "super:hash" == config.authentication.super_digest


def test_words_of_other_versions_in_the_whitelist_do_no_harm() -> None:
    config = ZooKeeperConfig.from_properties({"4lw.commands.whitelist": "ruok, gtmk, hash"})
    assert {"ruok"} == config.four_letter_words


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tickTime", "0", "`tickTime`=0 is not allowed"),
        ("tickTme", "1", "did you mean `tickTime`"),
        ("forceSync", "maybe", "it takes yes or no"),
        ("maxSessionTimeout", "10", "`minSessionTimeout`=1000 is not allowed: it takes 1 to"),
        ("server.1", "a:1:2", "standalone"),
        ("dynamicConfigFile", "x", "standalone"),
        ("ssl.quorum.keyStore.location", "x", "standalone"),
        ("secureClientPort", "0", "`ssl.trustStore.location` is needed"),
        ("enforce.auth.enabled", "true", "it takes some of digest, ip"),
        ("sessionRequireClientSASLAuth", "true", "needs SASL users"),
        ("java.security.auth.login.config", "/none", "cannot be read: No such file"),
        ("authProvider.1", "com.acme.Provider", "is not served; known are Digest"),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ZooKeeperConfig.from_properties({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enforceQuota", "true"),
        ("audit.enable", "true"),
        ("ssl.ocsp", "true"),
        ("ssl.clientHostnameVerification", "true"),
    ],
)
def test_settings_that_would_protect_what_this_server_cannot_are_refused(name: str, value: str) -> None:
    with pytest.raises(MissingFeatureError, match=f"`{name}`.* needs "):
        ZooKeeperConfig.from_properties({name: value})


def test_protections_that_are_switched_off_are_accepted() -> None:
    ZooKeeperConfig.from_properties({"enforce.auth.enabled": "false", "enforceQuota": "false"})
