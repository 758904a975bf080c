"""Every client that has GSSAPI logs in by Kerberos, over TLS and without, and does what it does elsewhere."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from tests.compat.java_releases import JavaRelease
from tests.compat.kdc import REALM, Kdc, running_kdc
from tests.compat.secured_programs import PROGRAMS, JavaTools, SecuredProgram, program_arguments
from tests.identity_provider import identity_provider
from tests.integration.net.secured_clients import FOREIGN_CLIENTS, SecuredClient
from tests.integration.net.secured_course import run_course
from tests.integration.net.secured_own_clients import OwnClient, ToolsClient
from tests.secured_broker import SASL_LISTENERS, Kerberos, SecuredBroker, Way

pytest.importorskip(
    "gssapi", reason="pip install 'kalda[kerberos]' (needs libkrb5-dev)", exc_type=ImportError
)

GSSAPI = "GSSAPI"
WAYS = [Way(listener, GSSAPI) for listener in SASL_LISTENERS]
IN_PYTHON: tuple[type[SecuredClient], ...] = (*FOREIGN_CLIENTS, OwnClient, ToolsClient)
PYTHON_CLIENTS = [each for each in IN_PYTHON if GSSAPI in each.mechanisms]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC whose tickets for alice this process and its children find."""
    with running_kdc(tmp_path_factory.mktemp("kdc")) as made, pytest.MonkeyPatch.context() as patch:
        for name in ("KRB5_CONFIG", "KRB5CCNAME"):
            patch.setenv(name, made.environment[name])
        made.run("kinit", "-k", "-t", str(made.key_table("alice")), "alice")
        yield made


@pytest.fixture(scope="module")
def broker(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    kerberos = Kerberos(REALM, kdc.directory, kdc.config)
    directory = tmp_path_factory.mktemp("secured")
    with (
        identity_provider() as provider,
        SecuredBroker(directory, provider, host="localhost", kerberos=kerberos) as made,
    ):
        yield made


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("client", PYTHON_CLIENTS, ids=lambda each: str(each.name).replace(" ", "-"))
def test_python_clients_and_kcat(
    broker: SecuredBroker, client: type[SecuredClient], way: Way, topic_name: Callable[[str], str]
) -> None:
    if client.name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("there is no kcat on the PATH")
    run_course(client(broker, way), topic_name(f"{way.user}.python"))


@pytest.mark.timeout(900)  # the first build takes minutes
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if GSSAPI in each.mechanisms], ids=lambda each: str(each.name)
)
def test_go_clients(
    broker: SecuredBroker,
    program: type[SecuredProgram],
    way: Way,
    go_programs: Path,
    topic_name: Callable[[str], str],
) -> None:
    client = program(broker, way, program_arguments(program.name, go_programs, None))
    run_course(client, topic_name(f"{way.user}.go"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1", "4.4.0"])
def test_javas_tools(
    broker: SecuredBroker, kdc: Kdc, way: Way, release: str, topic_name: Callable[[str], str]
) -> None:
    try:
        java = JavaRelease(release, [f"-Djava.security.krb5.conf={kdc.config}"])
    except NotAvailableError as error:
        pytest.skip(str(error))
    run_course(JavaTools(broker, way, java), topic_name(f"{way.user}.java"))
