"""`kalda features`: describes and changes the levels of features (KIP-584), as `kafka-features` does.

Which features a cluster has is its own affair: a KRaft cluster has `metadata.version` and others.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import parse_settings

if TYPE_CHECKING:
    from kalda.clients.admin.clusters import FeatureUpdate, UpgradeType

features = noun("Describe, raise, lower and disable features.")

_feature_option = click.option(
    "--feature", multiple=True, metavar="NAME=LEVEL", help="A feature and its new level; repeatable."
)
_unsafe_option = click.option("--unsafe", is_flag=True, help="Allow a change that may lose metadata.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Check only whether the change is possible.")


@command("describe", features)
async def describe(tool: Tool) -> None:
    """Describe features: the levels that a broker supports, and the level that the cluster uses."""
    async with tool.admin() as admin:
        found = await admin.describe_features()
    epoch = found.finalized_features_epoch
    rows = []
    for name in sorted({*found.supported_features, *found.finalized_features}):
        supported = found.supported_features.get(name)
        finalized = found.finalized_features.get(name)
        rows.append(
            (
                name,
                None if supported is None else supported.min_version,
                None if supported is None else supported.max_version,
                0 if finalized is None else finalized.max_version_level,
                epoch,
            )
        )
    names = ("feature", "supported_min_version", "supported_max_version", "finalized_version_level", "epoch")
    tool.output.result(
        {"features": [dict(zip(names, row, strict=True)) for row in rows]},
        Table(tuple(name.upper().replace("_", "-") for name in names), rows),
    )


@command("upgrade", features)
@_feature_option
@_dry_run_option
async def upgrade(tool: Tool, feature: tuple[str, ...], dry_run: bool) -> None:
    """Raise the levels of features, all of them or none."""
    from kalda.clients.admin.clusters import UpgradeType

    await _update(tool, _updates(feature, UpgradeType.UPGRADE), "Upgraded", "upgrade", is_dry_run=dry_run)


@command("downgrade", features)
@_feature_option
@_unsafe_option
@_dry_run_option
async def downgrade(tool: Tool, feature: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Lower the levels of features, all of them or none."""
    updates = _updates(feature, _downgrade_type(unsafe))
    await _update(tool, updates, "Downgraded", "downgrade", is_dry_run=dry_run)


@command("disable", features)
@click.option("--feature", multiple=True, metavar="NAME", help="A feature; repeatable.")
@_unsafe_option
@_dry_run_option
async def disable(tool: Tool, feature: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Disable features, all of them or none."""
    updates = _updates([f"{name}=0" for name in feature], _downgrade_type(unsafe))
    await _update(tool, updates, "Disabled", "disable", is_dry_run=dry_run)


def _downgrade_type(is_unsafe: bool) -> "UpgradeType":
    from kalda.clients.admin.clusters import UpgradeType

    return UpgradeType.UNSAFE_DOWNGRADE if is_unsafe else UpgradeType.SAFE_DOWNGRADE


def _updates(words: "tuple[str, ...] | list[str]", kind: "UpgradeType") -> "dict[str, FeatureUpdate]":
    from kalda.clients.admin.clusters import FeatureUpdate

    if not words:
        raise ToolUsageError("no feature is named; use --feature")
    names = [word.partition("=")[0] for word in words]
    if len(set(names)) < len(names):
        raise ToolUsageError("--feature names a feature twice")
    updates = {}
    for name, level in parse_settings("--feature", words).items():
        try:
            updates[name] = FeatureUpdate(int(level), kind)
        except ValueError:
            raise ToolUsageError(f"--feature={name}={level} is not allowed: the level is a number") from None
    return updates


async def _update(
    tool: Tool, updates: "Mapping[str, FeatureUpdate]", done: str, verb: str, *, is_dry_run: bool
) -> None:
    async with tool.admin() as admin:
        updated = await admin.update_features(updates, validate_only=is_dry_run, outcomes=True)
    word = f"Would {verb}" if is_dry_run else done
    tool.output.result(
        {
            "features": [
                {
                    "feature": name,
                    "level": update.max_version_level,
                    "error": error_json(updated.errors.get(name)),
                }
                for name, update in updates.items()
            ]
        },
        *(f"{word} {name} to level {updates[name].max_version_level}." for name in updated.results),
    )
    raise_for(tool.output, updated.errors.values())
