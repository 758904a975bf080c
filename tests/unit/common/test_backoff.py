import ast
import re
from pathlib import Path

import pytest

from kalda.common.backoff import ExponentialBackoff, jittered
from tests.runtimes import seeded

SOURCE = Path(__file__).parents[3] / "src/kalda"

CONSTANT = re.compile(r"([a-z_]+\.)*_?[A-Z_]+")
LOCAL = {"_TRY_AGAIN_S", "_TAKE_SECONDS"}
"""Waits for a lock file and a queue of this machine, where no peer is asked."""


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def test_waits_double_up_to_the_maximum() -> None:
    backoff = ExponentialBackoff(100, 1000, middle)

    waits = [round(backoff.seconds(failures), 6) for failures in range(1, 7)]

    assert [0.1, 0.2, 0.4, 0.8, 1.0, 1.0] == waits
    assert 1.0 == backoff.seconds(10_000)


def test_jitter_is_a_fifth_to_either_side() -> None:
    assert [0.08, 0.12] == [
        pytest.approx(ExponentialBackoff(100, 1000, pick).seconds(1)) for pick in (min, max)
    ]


def test_an_initial_wait_above_the_maximum_is_kept() -> None:
    assert [5.0, 5.0] == [ExponentialBackoff(5000, 1000, middle).seconds(each) for each in (1, 9)]


def test_no_wait_is_allowed() -> None:
    assert 0.0 == ExponentialBackoff(0, 0, middle).seconds(3)


def test_a_constant_pause_has_the_same_jitter() -> None:
    assert all(0.8 <= jittered(1.0, seeded(seed)) <= 1.2 for seed in range(20))


def constant_pauses(tree: ast.Module) -> list[str]:
    """Return the pauses after a failure whose length is a constant."""
    handlers = [each for each in ast.walk(tree) if isinstance(each, ast.ExceptHandler)]
    handled = {id(node) for each in handlers for node in ast.walk(each)}
    found = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith((".sleep", ".wait")) and call.args:
            pause = ast.unparse(call.args[0])
            says_so = re.search("RETRY|RECONNECT|BACKOFF|FAILED|CHROOT", pause.upper())
            if (
                (says_so or id(call) in handled)
                and (CONSTANT.fullmatch(pause) or pause.endswith("_ms / 1000"))
                and pause not in LOCAL
            ):
                found.append(f"{call.lineno}: {pause}")
    return found


def test_no_loop_that_asks_a_peer_again_pauses_for_a_constant_time() -> None:
    """Peers that lost the same server in the same moment would come back to it in the same moment."""
    found = {
        str(path.relative_to(SOURCE)): pauses
        for path in SOURCE.rglob("*.py")
        if (pauses := constant_pauses(ast.parse(path.read_text())))
    }
    assert {} == found
