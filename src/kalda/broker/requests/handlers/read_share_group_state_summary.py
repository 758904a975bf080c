"""ReadShareGroupStateSummary (key 87), versions 0-1: returns where share partitions begin (KIP-932).

v1 adds the count of deliveries that are complete (KIP-1226). Without state everything is -1.
"""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (0, 1), is_of_brokers=True)
