"""When a consumer counts as paused."""

from kalda.clients.legacy.consumer.pause_guard import PauseGuard


def test_a_third_of_the_session_without_a_beat_is_a_pause() -> None:
    """The server has heard the client for the last time up to a third of the session before."""
    now = 100.0
    guard = PauseGuard(6.0, monotonic=lambda: now)
    assert 0.5 == guard.interval_s
    now = 102.0
    assert not guard.is_paused()
    now = 102.1
    assert guard.is_paused()
    guard.beat()
    assert not guard.is_paused()
