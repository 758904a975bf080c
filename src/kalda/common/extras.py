"""Says how to install what an optional part of Kalda needs."""


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
