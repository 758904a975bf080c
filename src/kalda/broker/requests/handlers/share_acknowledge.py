"""ShareAcknowledge (key 79), versions 1-2: acknowledges records of a share group without a fetch (KIP-932).

v2 renews locks (KIP-1222).
"""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.SHARE_ACKNOWLEDGE, (1, 2))
