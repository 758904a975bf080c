"""AlterShareGroupOffsets (key 91), version 0: sets where the partitions of an empty share group begin
(KIP-932)."""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), audit=lambda request: (request.group_id,)
)
