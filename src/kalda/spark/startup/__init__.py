"""A directory for `PYTHONPATH`, with the module that Python's `site` runs when Spark starts a Python process.

`kalda.spark.session.build_session` names the directory to the virtual machine. Nothing but tests imports it.
"""
