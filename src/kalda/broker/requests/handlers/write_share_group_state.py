"""WriteShareGroupState (key 85), versions 0-1: stores what leaders of share partitions have changed
(KIP-932).

v1 adds the count of deliveries that are complete (KIP-1226).
"""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.WRITE_SHARE_GROUP_STATE, (0, 1), is_of_brokers=True)
