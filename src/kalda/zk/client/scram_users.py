"""Writes users' SCRAM credentials to ZooKeeper, as Kafka keeps them in ``/config/users/<user>``."""

import secrets
from collections.abc import Iterable
from urllib.parse import quote

from kalda.security.sasl.scram import SALT_BYTES, ScramCredential
from kalda.zk.client.cluster_store import ClusterStore

USERS = "users"


def entity_name(user: str) -> str:
    """Return a user's name as it stands in paths: percent-encoded, as Kafka's ``Sanitizer`` does.

    >>> entity_name("CN=alice, OU=Ops")
    'CN%3Dalice%2C%20OU%3DOps'
    """
    return quote(user, safe="")


async def set_scram_user(
    store: ClusterStore, user: str, mechanisms: Iterable[str], password: str, iterations: int
) -> None:
    """Set the credentials of a user; other settings of the user stay.

    Raises:
        ZooKeeperError: they could not be written.
    """
    settings = await store.config(USERS, entity_name(user))
    for mechanism in mechanisms:
        credential = ScramCredential.of_password(
            mechanism, password.encode(), secrets.token_bytes(SALT_BYTES), iterations
        )
        settings[mechanism] = credential.to_text()
    await store.set_config(USERS, entity_name(user), settings)
