"""Which modules of the clients other packages may use."""

import tomllib
from pathlib import Path

import kalda

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
CONTRACT = "Spark, pipelines and tools use the public part of the clients"
BESIDE = {
    "kalda.clients.admin.acls",
    "kalda.clients.admin.created_topics",
    "kalda.clients.legacy",
    "kalda.clients.shared_properties",
    "kalda.clients.transaction_control",
}
PACKAGES = ("kalda.clients.config.", "kalda.clients.range_reader.")


def test_the_modules_of_public_names_are_those_that_other_packages_may_import() -> None:
    """A module with its first public name is added to the contract; one without public names leaves it."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["name"] == CONTRACT)
    allowed = {
        module
        for source, module in (each.split(" -> ") for each in contract["ignore_imports"])
        if source == "kalda.**" and module not in BESIDE and not module.startswith(PACKAGES)
    }
    public = {
        module
        for module in kalda._MODULES.values()
        if module.startswith("kalda.clients.") and not module.startswith(PACKAGES)
    }
    assert public == allowed
