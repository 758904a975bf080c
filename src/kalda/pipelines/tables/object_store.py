"""Options of S3, in one spelling for the three table formats, and what each library calls them.

The names are those of Iceberg's file systems, `s3.…`. Without options, each library looks for credentials in
the environment (`AWS_…`), in `~/.aws` and at the machine's role.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

import pyarrow.fs as pafs

from kalda.pipelines.tables.errors import TableSpecError

SCHEMES: Final = ("s3", "s3a")
_FLAGS: Final = ("true", "false")
_NAMES: Final = {
    "s3.endpoint": ("endpoint_override", "AWS_ENDPOINT_URL"),
    "s3.region": ("region", "AWS_REGION"),
    "s3.access-key-id": ("access_key", "AWS_ACCESS_KEY_ID"),
    "s3.secret-access-key": ("secret_key", "AWS_SECRET_ACCESS_KEY"),
    "s3.session-token": ("session_token", "AWS_SESSION_TOKEN"),
    "s3.anonymous": ("anonymous", "AWS_SKIP_SIGNATURE"),
    "s3.force-virtual-addressing": ("force_virtual_addressing", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
}
"""Each option, and its name in Arrow's and in Delta's library."""
_IS_FLAG: Final = ("s3.anonymous", "s3.force-virtual-addressing")


def is_s3(location: str) -> bool:
    """Return whether a location is in an object store that speaks S3."""
    return location.partition("://")[0] in SCHEMES


def check_options(location: str, options: Mapping[str, str]) -> None:
    """Check the options of a table.

    Raises:
        TableSpecError: An option of S3 is unknown or wrong.
    """
    if not is_s3(location):
        return
    for name, value in options.items():
        if name not in _NAMES:
            plain = name.lower().removeprefix("aws_").replace("_", "-")
            near = get_close_matches(f"s3.{plain}", _NAMES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise TableSpecError(
                f"options has {name}, which is no option of S3.{hint} It takes {', '.join(_NAMES)}"
            )
        if name in _IS_FLAG and value.lower() not in _FLAGS:
            raise TableSpecError(f"options has {name}={value}; it takes true or false")
    endpoint = options.get("s3.endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise TableSpecError(f"options has s3.endpoint={endpoint}; it takes http://HOST:PORT or https://…")
    if ("s3.access-key-id" in options) != ("s3.secret-access-key" in options):
        raise TableSpecError("options has one of s3.access-key-id and s3.secret-access-key; it takes both")


def arrow_filesystem(options: Mapping[str, str]) -> pafs.FileSystem:
    """Return Arrow's file system for options of S3.

    Raises:
        TableSpecError: An option is wrong.
    """
    check_options("s3://", options)
    arguments: dict[str, object] = {}
    for name, value in options.items():
        arguments[_NAMES[name][0]] = value.lower() == "true" if name in _IS_FLAG else value
    if "s3.endpoint" in options:
        scheme, _, arguments["endpoint_override"] = options["s3.endpoint"].rstrip("/").partition("://")
        arguments["scheme"] = scheme
    return pafs.S3FileSystem(**arguments)


def delta_options(location: str, options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options for deltalake; None without any.

    Raises:
        TableSpecError: An option of S3 is wrong.
    """
    if not options:
        return None
    if not is_s3(location):
        return dict(options)
    check_options(location, options)
    found = {_NAMES[name][1]: value for name, value in options.items()}
    if options.get("s3.endpoint", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found
