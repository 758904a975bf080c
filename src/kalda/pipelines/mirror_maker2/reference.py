"""Writes the reference page of replication flows from the declarations of their settings.

Run it as ``python -m kalda.pipelines.mirror_maker2.reference docs/reference``. The page is committed, and a
test fails when it differs from the declarations.
"""

import sys
from pathlib import Path
from typing import Final

from kalda.common.config_tables import config_table
from kalda.pipelines.mirror_maker2.flow_config import (
    RENAMED,
    REPLACEABLE_CLASSES,
    WITHOUT_EFFECT,
    WITHOUT_EFFECT_PREFIXES,
    FlowConfig,
)

PAGE: Final = "mirror-configs.md"

_INTRODUCTION: Final = """\
# Settings of replication flows

The file of `kalda mirror` is MirrorMaker 2's `connect-mirror-maker.properties`;
[Mirror clusters](../how-to/mirror-clusters.md) shows how to write one. `clusters` lists the names of the
clusters. A setting of this table stands alone for all flows, or behind a flow: `A->B.topics`. A name that is
in none of the tables and lists of this page is an error, and the message has the nearest name.

Lists are split at commas. Where a name matches what is included and what is excluded, it is excluded.
Expressions are Java's and match whole names.
"""

_CLIENTS: Final = """\
## Settings of clients

The [settings of clients](client-configs.md) stand alone for all clusters, or behind a cluster, for all of its
clients (`A.bootstrap.servers`, which is required) or for one kind of them: `B.producer.linger.ms`,
`A.consumer.fetch.max.wait.ms`, `A.admin.retries`. Behind a flow, a kind is required: `A->B.producer.acks`.
Records are read with `isolation.level=read_committed` always.
"""

_WITHOUT_EFFECT: Final = """\
They are accepted, and named in a note. There is no Connect worker that they could set up; offsets are
translated exactly, by syncs in the transactions of the target.
"""


def page() -> str:
    """Return the page."""
    renamed = ", ".join(f"`{old}` is `{new}`" for old, new in RENAMED.items())
    classes = "\n".join(f"- `{name}`: `{own}`" for name, own in REPLACEABLE_CLASSES.items())
    prefixes = ", ".join(f"`{each}*`" for each in WITHOUT_EFFECT_PREFIXES)
    return "\n".join(
        [
            _INTRODUCTION,
            config_table(FlowConfig.definitions().values(), {}),
            f"Names before Kafka 2.7 are taken, too: {renamed}.\n",
            _CLIENTS,
            "## Classes\n",
            "These settings take Kafka's own class only, of which the behaviour is built in:\n",
            f"{classes}\n",
            "## Settings of MirrorMaker without effect\n",
            _WITHOUT_EFFECT,
            f"{', '.join(f'`{each}`' for each in WITHOUT_EFFECT)}, {prefixes}.\n",
        ]
    )


def main() -> None:
    """Write the page into the directory that the command line names."""
    (Path(sys.argv[1]) / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
