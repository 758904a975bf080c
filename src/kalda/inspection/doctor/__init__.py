"""The checks of `kalda doctor`: what an expert would look at, as functions from facts to findings.

`snapshot` holds the facts of a cluster, `machine` those of a broker's machine; `kalda.tools.doctor` gathers
both. The modules of checks do no I/O. `diagnosis` runs them all and ranks what they find.
"""
