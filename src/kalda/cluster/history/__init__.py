"""The history of a cluster's metadata: who changed what, and when.

`RecordingClient` adds a note to each transaction of a broker that changes metadata: a znode with the author
and the changes. The broker that leads the topic ``__cluster_history`` moves the notes into the topic, and
adds what it sees without a note (`kalda.broker.history`). `Timeline` reads the topic: the changes with what
was before each, and the state at a time.
"""
