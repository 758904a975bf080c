"""Certificates, users and passwords of a secured cluster are replaced under load, while brokers die."""

import random
from pathlib import Path

import pytest

from tests.chaos.copier_clients import KALDA, LIBRDKAFKA
from tests.chaos.secured_rounds import Options, run

ROUNDS = 3
"""In the gate, by client; `make chaos` runs fifty, which restart brokers in turn as well."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", [LIBRDKAFKA, KALDA])
def test_rotations_and_faults_lose_nothing_and_refuse_no_client(tmp_path: Path, client: str) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    report = run(Options(ROUNDS, seed, tmp_path, client, is_short=True))

    assert report.acknowledged > 1_000
    assert report.logins["success"] > 20
    assert report.refused > 0
