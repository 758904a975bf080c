"""Each API that a broker serves has a check, or is one that everybody may use."""

from kalda.broker.requests.access.request_access import CHECKS, UNCHECKED
from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import ApiKey

IN_THE_HANDLER = {ApiKey.PRODUCE, ApiKey.FETCH}
"""Their raw handlers check topics themselves."""


def test_every_api_is_checked() -> None:
    served = {handler.key for handler in HANDLERS}
    assert set() == served - CHECKS.keys() - UNCHECKED - IN_THE_HANDLER
    assert set() == CHECKS.keys() & (UNCHECKED | IN_THE_HANDLER)
