"""franz-go, Sarama, kafkajs and Java's tools over every listener with each mechanism that they have.

GSSAPI is in `test_kerberos.py`.
"""

from collections.abc import Callable

import pytest

from benchmarks.apache_kafka import NotAvailableError
from tests.compat.java_releases import JavaRelease
from tests.compat.programs import ProgramError
from tests.compat.secured_programs import PROGRAMS, JavaTools, SecuredProgram, program_arguments
from tests.integration.net.secured_course import run_course
from tests.secured_broker import SecuredBroker, Way, ways

CASES = [
    pytest.param(program, way, id=f"{program.name}-{way}")
    for program in PROGRAMS
    for way in ways(*(each for each in program.mechanisms if each != "GSSAPI"))
]
ALLOW_TOKENS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


@pytest.mark.timeout(900)  # the first build of the Go programs takes minutes
@pytest.mark.parametrize(("program", "way"), CASES)
def test_program_does_everything_as_the_user_that_it_is(
    secured: SecuredBroker,
    program: type[SecuredProgram],
    way: Way,
    topic_name: Callable[[str], str],
    request: pytest.FixtureRequest,
) -> None:
    fixture = "node_modules" if program.name == "kafkajs" else "go_programs"
    paths = {"go_programs": None, "node_modules": None, fixture: request.getfixturevalue(fixture)}
    client = program(secured, way, program_arguments(program.name, **paths))
    topic = topic_name(f"{way.user}.{program.name}")
    run_course(client, topic)
    if way.mechanism:
        wrong = {"token": "wrong"} if way.mechanism == "OAUTHBEARER" else {"password": "wrong"}
        with pytest.raises(ProgramError):
            client.program(**wrong).run("describe_group", topic=topic)


@pytest.fixture(scope="module", params=["3.9.1", "4.1.1", "4.4.0"])
def release(request: pytest.FixtureRequest, secured: SecuredBroker) -> JavaRelease:
    try:
        return JavaRelease(request.param, [f"{ALLOW_TOKENS}{secured.provider.url}/token"])
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ways(*(each for each in JavaTools.mechanisms if each != "GSSAPI")), ids=str)
def test_javas_tools_do_everything_as_the_user_that_they_are(
    secured: SecuredBroker, way: Way, release: JavaRelease, topic_name: Callable[[str], str]
) -> None:
    run_course(JavaTools(secured, way, release), topic_name(f"{way.user}.java"))


@pytest.mark.timeout(300)
def test_javas_tool_manages_delegation_tokens(secured: SecuredBroker, release: JavaRelease) -> None:
    """It makes, lists, renews and ends a token of the user that it logs in as."""
    way = Way("SASL_SSL", "SCRAM-SHA-512")
    server = (
        "--bootstrap-server",
        secured.address(way),
        "--command-config",
        str(secured.write_properties(way)),
    )

    def run(*arguments: str) -> str:
        return release.run("org.apache.kafka.tools.DelegationTokenCommand", *server, *arguments)

    made = run("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:plain")
    token_id, hmac, owner = made.splitlines()[-1].split()[:3]
    assert way.principal == owner
    # Without an owner the tool asks for the tokens of nobody, and Apache Kafka's brokers have none either.
    mine = ("--describe", "--owner-principal", way.principal)
    assert token_id in run(*mine)
    assert "Completed renew" in run("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed expire" in run("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in run(*mine)
