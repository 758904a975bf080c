"""Implements the checks of `kalda doctor`, as functions from facts about a cluster to findings.

`snapshot` holds the facts of a cluster, `machine` those of a broker's machine; `kalda.tools.doctor` gathers
both. The modules of checks do no I/O. `diagnosis` runs them all and ranks what they find.
"""
