"""Each version of each API works in a namespace as in the cluster, and no response shows a stored name."""

import uuid
from contextlib import closing
from typing import Any

import pytest

from kalda.broker.process.secure import ADMINISTRATOR
from kalda.common.api_keys import ApiKey
from kalda.protocol.namespaces.names import REFUSED
from kalda.protocol.namespaces.namespace import Namespace as StoredNames
from kalda.testing import Cluster, Namespace, Security
from tests.integration.broker.api_cases import Fields, Site
from tests.integration.broker.test_every_version_of_every_api import (
    NOBODY,
    SETTINGS,
    answers,
    check_logins,
    problem_of,
    versions,
)

PATHS = {ApiKey.ACQUIRE_READ_LEASE}
"""APIs whose responses have the paths of files, which have the stored names."""


class SpaceCluster:
    """A cluster as the clients of a namespace see it; for the rest it is the cluster."""

    def __init__(self, cluster: Cluster, space: Namespace) -> None:
        self.bootstrap = space.bootstrap
        self.stored = StoredNames(space.name)
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def wait_in_sync(self, topic: str) -> None:
        self._cluster.wait_in_sync(self.stored.stored(topic))


class SpaceSite(Site):
    """Connections to a namespace; every answer is looked through."""

    def __init__(self, cluster: SpaceCluster) -> None:
        self.stored = cluster.stored
        super().__init__(cluster)  # type: ignore[arg-type]  # it has all that a site uses

    def id_of(self, topic: str) -> uuid.UUID:
        return super().id_of(self.stored.stored(topic))

    def ask(
        self, key: ApiKey, version: int, fields: Fields, *, broker: int = 0, user: str = ADMINISTRATOR
    ) -> Any:
        answer = super().ask(key, version, fields, broker=broker, user=user)
        assert key in PATHS or self.stored.prefix not in repr(answer), f"{key.title} v{version}: {answer}"
        return answer


@pytest.mark.parametrize("is_secure", [False, True], ids=["open", "secured"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_announced_version_answers_in_a_namespace(count: int, *, is_secure: bool) -> None:
    """What succeeds, fails or is refused in a cluster does so in a namespace."""
    security = Security(users=[NOBODY], protocol="SASL_PLAINTEXT", mechanism="PLAIN") if is_secure else None
    # Leaders stay where they are on a busy machine: a lease is known to the broker that gave it.
    settings = SETTINGS | {"zookeeper.session.timeout.ms": "30000"}
    settings |= {"delegation.token.secret.key": "secret"} if is_secure else {}
    with (
        Cluster(count, settings=settings, security=security) as cluster,
        cluster.namespace() as space,
        closing(SpaceSite(SpaceCluster(cluster, space))) as site,
    ):
        problems = [
            f"{key.title} v{version}, {kind}: {problem}"
            for key, version in versions(site)
            if key not in REFUSED
            for kind, answer in answers(site, key, version)
            if (problem := problem_of(site, key, kind, answer)) is not None
        ]
        assert [] == problems
        check_logins(site)
