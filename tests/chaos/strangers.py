"""Clients that must not get in, all the time: wrong passwords, unknown users, a user without permissions."""

import random
import threading
from collections import Counter
from typing import Final

from kalda.common.errors import ErrorCode
from tests.chaos.secured_clients import TOPIC
from tests.chaos.secured_cluster import ADMINISTRATOR, BROKERS, SecuredBrokers
from tests.chaos.secured_visit import STRANGERS_ADDRESS, NoAnswerError, Visit

_PAUSE_SECONDS: Final = 0.1


class Strangers:
    """Tries one broker after the other in a thread of its own; `violations` says who let it in."""

    def __init__(self, cluster: SecuredBrokers, user: str, password: str) -> None:
        """`user` may log in, and may do nothing."""
        self.violations: Final[list[str]] = []
        self.refused: Final[Counter[str]] = Counter()
        self._cluster: Final = cluster
        self._user: Final = user
        self._password: Final = password
        self._choice: Final = random.Random(0)
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="strangers")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End it. Twice is harmless."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_SECONDS):
            address = self._cluster.address(self._choice.randrange(BROKERS), "clients")
            try:
                with Visit(address, self._cluster.tls(), STRANGERS_ADDRESS) as visit:
                    kind = self._choice.choice(["wrong password", "unknown user", "without permission"])
                    if self._is_refused(visit, kind):
                        self.refused[kind] += 1
                    else:
                        self.violations.append(f"{address} let a stranger in: {kind}")
            except NoAnswerError:
                # The broker is away, or trusts another authority than this moment's file.
                continue

    def _is_refused(self, visit: Visit, kind: str) -> bool:
        if kind == "wrong password":
            return not visit.log_in(ADMINISTRATOR, "a-wrong-password")
        if kind == "unknown user":
            return not visit.log_in("nobody", "a-wrong-password")
        if not visit.log_in(self._user, self._password):
            # The broker has just started and does not know the user yet.
            return True
        return visit.topic_error(TOPIC) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
