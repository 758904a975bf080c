"""Reads and writes users' SCRAM credentials, as Kafka keeps them in ``/config/users/<user>``.

The names of users are percent-encoded in paths, as Kafka's ``Sanitizer`` does.
"""

import logging
from collections.abc import Mapping
from typing import Final

from kalda.broker.config import ConfigStore
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.scram_users import USERS
from kalda.common.sanitizer import desanitize, sanitize
from kalda.security.sasl.scram import HASHES, ScramCredential

logger: Final = logging.getLogger(__name__)


class ScramCredentials:
    """The credentials of the cluster's users, by name and mechanism."""

    def __init__(self, config_store: ConfigStore, cluster: ClusterStore) -> None:
        self._store: Final = config_store
        self._cluster: Final = cluster

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential; None if there is none, or it is malformed."""
        return _credential(self._store.entity(USERS, sanitize(user)), mechanism, user)

    def mechanisms(self, user: str) -> dict[str, int]:
        """Return the iterations of a user's credentials by mechanism."""
        found = ((mechanism, self.find(mechanism, user)) for mechanism in HASHES)
        return {mechanism: credential.iterations for mechanism, credential in found if credential is not None}

    def users(self) -> list[str]:
        """Return the users that have a credential, sorted."""
        names = (desanitize(name) for name in self._store.entity_names(USERS))
        return sorted(name for name in names if self.mechanisms(name))

    async def alter(self, user: str, deletions: list[str], upsertions: Mapping[str, ScramCredential]) -> None:
        """Delete and set credentials of one user; other settings of the user stay.

        Raises:
            ZooKeeperError: they could not be written.
        """

        def change(settings: dict[str, str]) -> dict[str, str]:
            for mechanism in deletions:
                settings.pop(mechanism, None)
            return settings | {mechanism: each.to_text() for mechanism, each in upsertions.items()}

        name = sanitize(user)
        self._store.set_entity(USERS, name, await self._cluster.update_config(USERS, name, change))


def _credential(settings: Mapping[str, str], mechanism: str, user: str) -> ScramCredential | None:
    text = settings.get(mechanism)
    if text is None:
        return None
    try:
        return ScramCredential.from_text(text)
    except ValueError as error:
        logger.error("user %s cannot log in by %s: %s", user, mechanism, error)
        return None
