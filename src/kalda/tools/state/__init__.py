"""`kalda state`: a cluster's topics, settings and groups' offsets as files, one folder for each environment.

`model` is what both sides have in common, `folder` and `documents` read and write it as YAML,
`cluster` reads and changes it through `Admin`, and `planner` decides the steps from one to the other.
"""
