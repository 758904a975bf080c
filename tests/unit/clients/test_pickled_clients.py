import pickle

import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer import Consumer
from kalda.clients.share.async_share_consumer import AsyncShareConsumer
from kalda.clients.share.share_consumer import ShareConsumer


@pytest.mark.parametrize(
    "client", [Admin, AsyncAdmin, AsyncConsumer, Consumer, AsyncShareConsumer, ShareConsumer]
)
def test_clients_cannot_be_pickled(client: type) -> None:
    """The error says what to do, and does not name a lock or a socket that the user has never seen."""
    with pytest.raises(TypeError, match=f"{client.__name__} cannot be pickled.*create one in each process"):
        pickle.dumps(object.__new__(client))
