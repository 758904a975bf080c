from itertools import pairwise

import pytest

from kalda.common.api_keys import ApiKey
from kalda.protocol.releases import find_release, is_at_least, release_names, versions_of


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.8.2", "0.8.2"),
        ("0.8.2.2", "0.8.2"),
        ("0.9", "0.9.0"),
        ("0.10.2.2", "0.10.2"),
        ("0.10.0-IV1", "0.10.0"),
        ("2.8", "2.8"),
        ("2.8.1", "2.8"),
        ("3.9-IV0", "3.9"),
        ("0.8.1", None),
        ("0.8", None),
        ("4.0", None),
        ("3", None),
        ("", None),
        ("3.9 ", None),
        ("3.9.x", None),
    ],
)
def test_a_release_is_found_by_the_spellings_of_operators(text: str, release: str | None) -> None:
    assert release == find_release(text)


def test_versions_only_grow_from_release_to_release() -> None:
    releases = release_names()
    for earlier, later in pairwise(releases):
        before, after = versions_of(earlier), versions_of(later)
        assert before.keys() <= after.keys()
        assert all(after[key] >= version for key, version in before.items())
        assert before != after


def test_milestones_of_the_protocol() -> None:
    """KIP-35 in 0.10.0, KIP-98 in 0.11.0, KIP-227 in 1.1, KIP-848 in 3.7."""
    assert ApiKey.API_VERSIONS not in versions_of("0.9.0")
    assert 0 == versions_of("0.10.0")[ApiKey.API_VERSIONS]
    assert 3 == versions_of("0.11.0")[ApiKey.PRODUCE]
    assert ApiKey.INIT_PRODUCER_ID not in versions_of("0.10.2")
    assert 7 == versions_of("1.1")[ApiKey.FETCH]
    assert 17 == versions_of("3.9")[ApiKey.FETCH]
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT not in versions_of("3.6")


def test_releases_are_ordered_by_age() -> None:
    assert is_at_least("0.10.2", "0.9.0")
    assert is_at_least("2.4", "2.4")
    assert not is_at_least("0.11.0", "1.0")
