"""Writes users' SCRAM credentials to ZooKeeper, as Kafka keeps them in ``/config/users/<user>``."""

from collections.abc import Iterable

from kalda.cluster.cluster_store import ClusterStore
from kalda.common.sanitizer import sanitize
from kalda.security.sasl.scram import SALT_BYTES, ScramCredential

USERS = "users"


async def set_scram_user(
    store: ClusterStore, user: str, mechanisms: Iterable[str], password: str, iterations: int
) -> None:
    """Set the credentials of a user; other settings of the user stay.

    Raises:
        ZooKeeperError: they could not be written.
    """
    credentials = {
        mechanism: ScramCredential.of_password(
            mechanism, password.encode(), store.random.randbytes(SALT_BYTES), iterations
        ).to_text()
        for mechanism in mechanisms
    }
    await store.update_config(USERS, sanitize(user), lambda settings: settings | credentials)
