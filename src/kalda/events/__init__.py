"""Causal events: what changed in a broker, when, and what caused it.

`event` has the values and the kinds, `ring_file` their format on disk, `ring` the bounded files of one
broker, `recorder` what the parts of a broker emit to, and `causes`, `chains` and `words` the reasoning of
``kalda why``. Values, formats and reasoning use no I/O.
"""
