"""Randomness: one port for ids, jitter and secrets."""

import base64
import random

from kalda.runtime.random import Random, new_uuid, random_text
from kalda.runtime.system.random import SYSTEM_RANDOM


def drawn(source: Random) -> list[object]:
    shuffled = list(range(10))
    source.shuffle(shuffled)
    return [
        source.random(),
        source.uniform(1, 2),
        source.randrange(1_000),
        source.randrange(5, 7),
        source.randbytes(16),
        source.sample(range(100), 3),
        shuffled,
        new_uuid(source),
        random_text(source, 20),
    ]


def test_a_seed_repeats_every_answer() -> None:
    """A simulation passes Python's own generator as the port."""
    assert drawn(random.Random(7)) == drawn(random.Random(7))
    assert drawn(random.Random(7)) != drawn(random.Random(8))


def test_the_systems_randomness_repeats_nothing_and_has_no_seed() -> None:
    """Secrets come from it: it is the generator of `secrets`."""
    assert isinstance(SYSTEM_RANDOM, random.SystemRandom)
    assert drawn(SYSTEM_RANDOM) != drawn(SYSTEM_RANDOM)


def test_ids_are_uuids_of_version_4() -> None:
    made = new_uuid(random.Random(1))
    assert 4 == made.version
    assert made != new_uuid(random.Random(2))


def test_text_of_bytes_is_url_safe_and_without_padding() -> None:
    text = random_text(random.Random(3), 20)
    assert 27 == len(text)
    assert random.Random(3).randbytes(20) == base64.urlsafe_b64decode(text + "=")
