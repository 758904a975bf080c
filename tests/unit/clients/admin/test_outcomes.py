"""What admin calls return: no error may be mistaken for a result."""

import pytest

from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.errors import ClientError


def test_reading_what_failed_raises_its_error() -> None:
    outcomes: Outcomes[str, int] = Outcomes({"flights": 3}, {"secret": ClientError("not authorised")})

    assert 3 == outcomes["flights"]
    with pytest.raises(ClientError, match="not authorised"):
        outcomes["secret"]
    with pytest.raises(KeyError):
        outcomes["never asked for"]


def test_iteration_covers_failures_so_a_dict_of_them_raises() -> None:
    """`dict(outcomes)` is what users write who forget about errors."""
    outcomes: Outcomes[str, int] = Outcomes({"flights": 3}, {"secret": ClientError("not authorised")})

    assert ["flights", "secret"] == list(outcomes)
    assert 2 == len(outcomes)
    assert "secret" in outcomes
    with pytest.raises(ClientError, match="not authorised"):
        dict(outcomes)
    assert {"flights": 3} == dict(Outcomes({"flights": 3}))


def test_the_first_error_is_raised_with_the_others_as_notes() -> None:
    outcomes: Outcomes[int, None] = Outcomes({}, {n: ClientError(f"partition {n}") for n in range(13)})

    for _ in range(2):  # the notes are added once, however often it is raised
        with pytest.raises(ClientError, match="partition 0") as raised:
            outcomes.raise_for_errors()

    assert [f"also failed: partition {n}" for n in range(1, 11)] + ["and 2 more failed"] == (
        raised.value.__notes__
    )


def test_errors_inside_results_are_raised_too() -> None:
    """A group whose offsets were refused partition by partition has not been changed."""
    outcomes = Outcomes({"group": Outcomes({0: None}, {1: ClientError("partition 1")})})

    with pytest.raises(ClientError, match="partition 1"):
        outcomes.raise_for_errors()


def test_without_errors_nothing_is_raised() -> None:
    Outcomes({"flights": 3}).raise_for_errors()
    assert ["a"] == Listing(["a"]).all()


def test_a_listing_that_lacks_a_broker_is_not_complete() -> None:
    """A group whose coordinator is down must not look deleted."""
    listing = Listing(["a"], {2: ClientError("broker 2 is down")})

    assert ["a"] == listing.results
    with pytest.raises(ClientError, match="broker 2 is down"):
        listing.all()
