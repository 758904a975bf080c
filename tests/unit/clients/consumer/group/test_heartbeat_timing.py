from kalda.clients.consumer.group.heartbeat_timing import HeartbeatTiming


def timing() -> HeartbeatTiming:
    result = HeartbeatTiming(
        session_timeout_ms=10_000,
        heartbeat_interval_ms=3_000,
        max_poll_interval_ms=60_000,
        backoff=lambda failures: 0.1 * failures,
    )
    result.joined(100.0)
    return result


def test_heartbeats_follow_the_interval() -> None:
    """The first one is due an interval after the join, the next one an interval after it was sent."""
    timers = timing()
    assert 103.0 == timers.next_heartbeat_at
    timers.sent(103.5)
    assert 106.5 == timers.next_heartbeat_at


def test_failed_heartbeats_are_repeated_with_back_off() -> None:
    """A lost heartbeat must not cost a whole interval of the session."""
    timers = timing()
    timers.failed(104.0)
    assert 104.1 == timers.next_heartbeat_at
    timers.failed(104.1)
    assert 104.3 == round(timers.next_heartbeat_at, 3)
    timers.session_is_alive(104.2)
    timers.failed(105.0)
    assert 105.1 == timers.next_heartbeat_at


def test_the_session_expires_without_successful_heartbeats() -> None:
    """The coordinator may have moved without this member noticing it."""
    timers = timing()
    assert not timers.is_session_expired(109.9)
    assert timers.is_session_expired(110.0)
    timers.session_is_alive(109.0)
    assert not timers.is_session_expired(118.9)


def test_the_poll_interval_expires_without_polls() -> None:
    """An application that hangs keeps no partitions although heartbeats go on (KIP-62)."""
    timers = timing()
    timers.polled(130.0)
    timers.session_is_alive(180.0)
    assert not timers.is_poll_expired(189.9)
    assert timers.is_poll_expired(190.0)
