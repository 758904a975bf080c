"""ShareGroupHeartbeat (key 76), version 1: a member joins, stays in or leaves a share group (KIP-932)."""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1))
