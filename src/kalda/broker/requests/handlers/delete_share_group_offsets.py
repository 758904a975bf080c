"""DeleteShareGroupOffsets (key 92), version 0: deletes the offsets of topics in an empty share group
(KIP-932)."""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), audit=lambda request: (request.group_id,)
)
