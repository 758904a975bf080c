"""Implements hand-written codecs of Produce and Fetch, the two requests that carry the data.

They read a request's fields from its frame and build a response's bytes without a message object in between,
which is most of the cost of a small request. The general codec stays the specification: a property test
checks that both agree for every version. No other API belongs here.
"""
