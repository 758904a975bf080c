"""Apache Kafka's tool manages the quotas of Kalda's brokers, in names that need an encoding too."""

from pathlib import Path

from kalda import Admin
from kalda.testing import KaldaProcess
from tests.compat.conftest import JavaTool

TOOL = "kafka.admin.ConfigCommand"
USER, CLIENT_ID = "CN=alice, OU=Ö/ps*~", "app one"


def test_kafkas_tool_sets_lists_and_removes_quotas(java_tool: JavaTool, tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data") as broker:
        server = ("--bootstrap-server", broker.bootstrap)

        def alter(quotas: str, *entity: str) -> None:
            java_tool(TOOL, *server, "--alter", "--add-config", quotas, *entity)

        def described(*entity: str) -> list[str]:
            return java_tool(TOOL, *server, "--describe", *entity).splitlines()

        users, clients, ips = (("--entity-type", kind) for kind in ("users", "clients", "ips"))
        both = (*users, "--entity-name", USER, *clients, "--entity-name", CLIENT_ID)
        alter("producer_byte_rate=1024,request_percentage=150.5,controller_mutation_rate=0.5", *both)
        alter("producer_byte_rate=10", *users, "--entity-default")
        alter("consumer_byte_rate=12", *users, "--entity-default", *clients, "--entity-default")
        alter("connection_creation_rate=13", *ips, "--entity-default")

        assert ["Quota configs for the default user-principal are producer_byte_rate=10.0"] == described(
            *users
        )
        assert [] == described(*clients)
        assert ["Quota configs for the default ip are connection_creation_rate=13.0"] == described(*ips)
        of_defaults, of_alice = sorted(described(*users, *clients))
        named = "Quota configs for the default user-principal, the default client-id are "
        assert f"{named}consumer_byte_rate=12.0" == of_defaults
        head, _, quotas = of_alice.partition(" are ")
        assert f"Quota configs for user-principal '{USER}', client-id '{CLIENT_ID}'" == head
        expected = {"producer_byte_rate=1024.0", "controller_mutation_rate=0.5", "request_percentage=150.5"}
        assert expected == set(quotas.split(", "))

        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            entity = (("client-id", CLIENT_ID), ("user", USER))
            assert 1024.0 == admin.describe_client_quotas()[entity]["producer_byte_rate"]
        java_tool(
            TOOL, *server, "--alter", "--delete-config", "producer_byte_rate", *users, "--entity-default"
        )
        assert [] == described(*users)
