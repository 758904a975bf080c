"""ShareFetch (key 78), versions 1-2: acquires records for a member of a share group (KIP-932).

The request may acknowledge records, which is done first. v2 acquires no more records than the client wants,
if it asks for that (KIP-1206), and renews locks (KIP-1222): such a request acquires nothing.
"""

from typing import Final

from kalda.broker.requests.share_api import share_api
from kalda.common.api_keys import ApiKey

HANDLER: Final = share_api(ApiKey.SHARE_FETCH, (1, 2))
