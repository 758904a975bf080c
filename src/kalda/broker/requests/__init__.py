"""Receives requests from connections and answers them: the dispatcher and a handler for each API key.

A handler checks a request, calls the part of the broker that does the work and makes the response. The work
itself is in the packages below (`config`, `metadata`, `topics`, `replicas`, `fetching`, `leases`, ...) and in
the coordinators of `kalda.coordinator`. None of these packages imports `requests`.
Encoding and decoding are in `kalda.protocol`.
"""
