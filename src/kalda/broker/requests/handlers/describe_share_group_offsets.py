"""DescribeShareGroupOffsets (key 90), versions 0-1: where the partitions of share groups begin (KIP-932).

v1 adds the lag (KIP-1226): the records from there to the high watermark that are not done.
"""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1))
