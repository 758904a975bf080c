"""Hand-written codecs of the two requests that carry the data, Produce and Fetch.

They read a request's fields straight from its frame and build a response's bytes without a message object in
between, which is most of what a small request costs. Beside them the general codec stays the specification:
a property test demands that both agree for every version. Nothing else belongs here.
"""
