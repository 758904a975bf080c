"""Builds the message that names how to install an optional part of Kalda."""

from importlib.util import find_spec


def install_hint(extra: str) -> str:
    """Return how to install an extra. Kalda is on no package index, so its name alone would install another.

    >>> install_hint("arrow")
    "install Kalda with the extra [arrow], in its checkout: pip install '.[arrow]'"
    """
    return f"install Kalda with the extra [{extra}], in its checkout: pip install '.[{extra}]'"


def missing_package(what: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of a call that needs an extra."""
    return ModuleNotFoundError(
        f"{what} needs the package {error.name}; {install_hint(extra)}", name=error.name
    )


def check_pandas(what: str) -> None:
    """Check that pandas can be had for a call, before it takes records. No extra has pandas without PySpark.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    if find_spec("pandas") is None:
        raise ModuleNotFoundError(
            f"{what} needs the package pandas; {install_hint('arrow')} 'pandas<3'", name="pandas"
        )
