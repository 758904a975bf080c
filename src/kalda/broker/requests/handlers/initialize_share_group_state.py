"""InitializeShareGroupState (key 83), versions 0-0: creates state of share partitions (KIP-932)."""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (0, 0), is_of_brokers=True)
