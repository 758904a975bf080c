"""ReadShareGroupState (key 84), versions 0-0: returns state of share partitions to their leaders
(KIP-932)."""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.READ_SHARE_GROUP_STATE, (0, 0), is_of_brokers=True)
