"""Each API that a broker serves has a check, or is one that everybody may use."""

from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import ApiKey

IN_THE_HANDLER = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
}
"""The raw handlers check topics, and those of tokens ask whether a client is owner or renewer."""

OF_EVERY_CLIENT = {
    ApiKey.API_VERSIONS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.RELEASE_READ_LEASE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
}


def test_every_other_api_is_checked() -> None:
    assert IN_THE_HANDLER | OF_EVERY_CLIENT == {handler.key for handler in HANDLERS if handler.access is None}
