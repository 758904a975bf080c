"""Implements hand-written codecs of Produce and Fetch, the two requests that carry the data.

They read a request's fields from its frame and write a response's bytes directly. Message objects are most of
the cost of a small request, so these codecs create none. The general codec stays the specification: a
property test checks that both agree for every version. No other API belongs here.
"""
