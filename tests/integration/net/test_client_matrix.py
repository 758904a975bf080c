"""Every client over every listener with each mechanism that it has; GSSAPI is in `tests/compat`."""

import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.identity_provider import identity_provider
from tests.integration.net.secured_clients import FOREIGN_CLIENTS, SecuredClient
from tests.integration.net.secured_course import run_course
from tests.integration.net.secured_own_clients import OwnClient, ToolsClient
from tests.secured_broker import SecuredBroker, Way, secured_broker, ways

pytestmark = pytest.mark.xdist_group("client_matrix")

CLIENTS: tuple[type[SecuredClient], ...] = (*FOREIGN_CLIENTS, OwnClient, ToolsClient)
CASES = [
    pytest.param(client, way, id=f"{client.name}-{way}".replace(" ", "-"))
    for client in CLIENTS
    for way in ways(*(each for each in client.mechanisms if each != "GSSAPI"))
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with identity_provider() as provider, secured_broker(tmp_path_factory.mktemp("matrix"), provider) as made:
        yield made


@pytest.mark.parametrize(("client", "way"), CASES)
def test_client_does_everything_as_the_user_that_it_is(
    broker: SecuredBroker, client: type[SecuredClient], way: Way, topic_name: Callable[[str], str]
) -> None:
    if client.name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("there is no kcat on the PATH")
    run_course(client(broker, way), topic_name(f"{way.user}.matrix"))
