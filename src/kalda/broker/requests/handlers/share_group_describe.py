"""ShareGroupDescribe (key 77), version 1: returns the state and the members of share groups (KIP-932)."""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1))
