"""Replaces certificates, authorities, passwords, users, tokens and ACLs of a cluster that is under load.

Each does what `docs/how-to/secure-a-cluster.md` describes for an operator, in the same order: what is new
becomes valid everywhere first, then everybody changes over, then what is old ends.
"""

import base64
import random
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from kalda.common.errors import ErrorCode
from tests.chaos.cluster_operator import Operator
from tests.chaos.ordered_load import UNUSED_GROUP
from tests.chaos.secured_clients import GROUPS, PROBE_PREFIX, TOPIC, Fleet
from tests.chaos.secured_cluster import BROKER_USERS, BROKERS, LISTENERS, new_authority
from tests.chaos.secured_visit import OWN_ADDRESS, NoAnswerError, Visit

AUTHORITY_STEPS: Final = ("trust a new authority", "move to the new authority", "drop the old authority")
BROKERS_USER: Final = "user of the brokers"


class Rotations:
    """Everything that can be replaced."""

    def __init__(
        self,
        operator: Operator,
        choice: random.Random,
        library: str,
        restart_all: Callable[[], None],
    ) -> None:
        """`restart_all` restarts one broker after the other."""
        self._operator: Final = operator
        self._cluster: Final = operator.cluster
        self._choice: Final = choice
        self._library: Final = library
        self._restart_all: Final = restart_all
        self._fleet: Fleet | None = None
        self.job = ""
        """A user without clients, for changes of a password in place."""
        self._users: Final[dict[str, str]] = {}
        """The user of each role."""
        self._number = 0
        self._former_authority = self._cluster.authority
        self._authority_step = 0

    def first_users(self, roles: Iterable[str]) -> dict[str, dict[str, str]]:
        """Create a user for each role; return how the clients of each role connect."""
        for role in roles:
            self._users[role] = self._new_user(role)
        self.job = self._new_user("job")
        return {
            role: self._cluster.client_settings(self._library, user) for role, user in self._users.items()
        }

    def attach(self, fleet: Fleet) -> None:
        """Set the clients that change over."""
        self._fleet = fleet

    def choose(self) -> tuple[str, Callable[[], None]]:
        """Return one of the rotations that faults may happen during."""
        rotations: list[tuple[str, Callable[[], None], int]] = [
            ("certificates by file", self._certificates_by_file, 3),
            ("a certificate by setting", self._certificate_by_setting, 2),
            (AUTHORITY_STEPS[self._authority_step], self._next_authority_step, 4),
            ("a password in place", self._password, 2),
            ("a delegation token", self._token, 1),
            ("ACLs", self._acls, 1),
        ]
        rotations += [(f"user of {role}", partial(self._user, role), 1) for role in self._users]
        name, run, _ = self._choice.choices(rotations, [weight for *_, weight in rotations])[0]
        return name, run

    def brokers_user(self) -> None:
        """Have brokers log in to each other as another user: a rolling restart."""
        cluster, operator = self._cluster, self._operator
        old = cluster.broker_user
        new = BROKER_USERS[1 - BROKER_USERS.index(old)]
        password = cluster.secrets.new(new)
        operator.set_user(new, password)
        operator.wait_everywhere("the brokers' new user", lambda visit: visit.log_in(new, password))
        cluster.broker_user = new
        for broker_id in range(BROKERS):
            cluster.write_settings(broker_id)
        self._restart_all()
        self._end_user(old)

    # Certificates.

    def _certificates_by_file(self) -> None:
        for listener in self._listeners():
            self._replace(listener)

    def _certificate_by_setting(self) -> None:
        broker_id, listener = self._choice.randrange(BROKERS), self._choice.choice(LISTENERS)
        self._number += 1
        path = self._cluster.stores[broker_id, listener].with_name(
            f"broker-{broker_id}-{listener}-{self._number}.pem"
        )
        self._cluster.write_store(path)
        self._operator.set_broker(broker_id, f"listener.name.{listener}.ssl.keystore.location", str(path))
        self._cluster.stores[broker_id, listener] = path
        self._wait_shown(broker_id, listener)

    def _add_authority(self) -> None:
        cluster = self._cluster
        self._former_authority, cluster.authority = cluster.authority, new_authority("next")
        cluster.trust(self._former_authority, cluster.authority)
        probe = self._probe_store()
        self._operator.wait_everywhere(
            "the new authority is trusted",
            Visit.is_accepted,
            listener="brokers",
            store=probe,
        )
        # Libraries read trust stores when a client is created.
        for role, user in self._users.items():
            self._renew(role, user)

    def _move_to_authority(self) -> None:
        for listener in LISTENERS:
            self._replace(listener)

    def _drop_authority(self) -> None:
        cluster = self._cluster
        new, cluster.authority = cluster.authority, self._former_authority
        probe = self._probe_store()
        cluster.authority = new
        cluster.trust(new)
        self._operator.wait_everywhere(
            "the former authority is not trusted",
            lambda visit: not visit.is_accepted(),
            listener="brokers",
            store=probe,
        )

    def _next_authority_step(self) -> None:
        steps = (self._add_authority, self._move_to_authority, self._drop_authority)
        steps[self._authority_step]()
        self._authority_step = (self._authority_step + 1) % len(steps)

    def _listeners(self) -> list[str]:
        return self._choice.choice([["clients"], ["brokers"], list(LISTENERS)])

    def _replace(self, listener: str) -> None:
        """Write a new certificate of each broker over the old one."""
        for broker_id in range(BROKERS):
            self._cluster.write_store(self._cluster.stores[broker_id, listener])
        for broker_id in range(BROKERS):
            self._wait_shown(broker_id, listener)

    def _wait_shown(self, broker_id: int, listener: str) -> None:
        """Wait until a broker shows the certificate that is in its store."""
        wanted = certificate_in(self._cluster.stores[broker_id, listener])
        self._operator.wait_everywhere(
            f"the new certificate of {listener} is shown",
            lambda visit: visit.certificate == wanted,
            listener=listener,
            brokers=[broker_id],
            store=self._cluster.stores[broker_id, listener],
        )

    def _probe_store(self) -> Path:
        """Write a certificate of the authority that signs now, for the run's own connections."""
        path = self._cluster.trust_file.with_name("probe.pem")
        self._cluster.write_store(path)
        return path

    # Users, tokens and ACLs.

    def _new_user(self, role: str) -> str:
        """Create a user for a role, and wait until all brokers know what it is allowed."""
        self._number += 1
        user = f"{role}-{self._number}"
        password = self._cluster.secrets.new(user)
        self._operator.set_user(user, password)
        self._operator.allow(role, user)
        groups = {"member": tuple(GROUPS), "reader": (UNUSED_GROUP,)}.get(role, ())
        topic = f"{PROBE_PREFIX}0" if role == "prober" else TOPIC

        def is_known(visit: Visit) -> bool:
            return (
                visit.log_in(user, password)
                and visit.topic_error(topic) != ErrorCode.TOPIC_AUTHORIZATION_FAILED
                and all(visit.group_error(group) != ErrorCode.GROUP_AUTHORIZATION_FAILED for group in groups)
            )

        self._operator.wait_everywhere(f"the new user {user}", is_known)
        return user

    def _end_user(self, user: str) -> None:
        password = self._cluster.secrets.of.pop(user)
        self._operator.delete_user(user)
        self._operator.wait_everywhere(
            f"the former user {user} is refused", lambda visit: not visit.log_in(user, password)
        )

    def _user(self, role: str) -> None:
        old, new = self._users[role], self._new_user(role)
        self._renew(role, new)
        self._users[role] = new
        self._end_user(old)
        self._operator.disallow(old)

    def _renew(self, role: str, user: str) -> None:
        assert self._fleet is not None, "a rotation before there are clients"
        self._fleet.renew(role, self._cluster.client_settings(self._library, user))

    def _password(self) -> None:
        """Set another password of a user that has an open connection, which goes on."""
        secrets, operator = self._cluster.secrets, self._operator
        old = secrets.of[self.job]
        new = secrets.new(self.job)
        address = self._cluster.address(self._choice.randrange(BROKERS), "clients")
        with suppress(NoAnswerError), Visit(address, self._cluster.tls(), OWN_ADDRESS) as kept:
            assert kept.log_in(self.job, old), f"{self.job} cannot log in at {address}"
            operator.set_user(self.job, new)
            found = kept.topic_error(TOPIC)
            assert ErrorCode.NONE == found, f"an open connection of {self.job}: {found.name}"
        operator.set_user(self.job, new)
        operator.wait_everywhere("the new password", lambda visit: visit.log_in(self.job, new))
        operator.wait_everywhere("not the old password", lambda visit: not visit.log_in(self.job, old))

    def _token(self) -> None:
        token = self._operator.new_token()
        password = self._cluster.secrets.added(base64.b64encode(token.hmac).decode())

        def is_valid(visit: Visit) -> bool:
            return visit.log_in(token.token_id, password, is_token=True)

        self._operator.wait_everywhere("the token is valid", is_valid)
        self._operator.end_token(token)
        self._operator.wait_everywhere("the token has ended", lambda visit: not is_valid(visit))

    def _acls(self) -> None:
        self._operator.disallow(self.job)
        self._wait_job(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        self._operator.allow("job", self.job)
        self._wait_job(ErrorCode.NONE)

    def _wait_job(self, wanted: ErrorCode) -> None:
        password = self._cluster.secrets.of[self.job]

        def is_so(visit: Visit) -> bool:
            return visit.log_in(self.job, password) and visit.topic_error(TOPIC) == wanted

        self._operator.wait_everywhere(f"the ACLs of {self.job}", is_so)


def certificate_in(store: Path) -> bytes:
    """Return the first certificate of a key store in PEM, in DER."""
    text = store.read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(begin + text.partition(begin)[2].partition(end)[0] + end)
