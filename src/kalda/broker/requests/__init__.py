"""Receives requests from connections and answers them: the dispatcher and a handler for each API key.

A handler checks a request, calls the part of the broker that does the work and makes the response. The work
itself is in the other packages of the broker, nearly all of which the handlers use; none of them uses
`requests`. Encoding and decoding are in `kalda.protocol`.
"""
