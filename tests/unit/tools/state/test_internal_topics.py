"""Which topics are no part of a cluster's state."""

import re

from kalda.tools.state.cluster import is_ignored


def test_topics_of_brokers_pipelines_and_mirrors_are_left_out() -> None:
    """A state pulled after a pipeline must not order another cluster to create the pipeline's ledger."""
    names = [
        "__consumer_offsets",
        "__share_group_state",
        "__kalda_audit",
        "__kalda_mirror_syncs",
        "__mine",
        "kalda",
    ]

    assert ["__mine", "kalda"] == [name for name in names if not is_ignored(name, None)]
    assert is_ignored("tmp.x", re.compile(r"tmp\..*"))
