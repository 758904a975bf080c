"""Gives clients of one namespace the names of their own topics, groups and users. Sans-IO.

A namespace is a prefix that is added to the names in a client's requests and taken from the names in the
responses. `names` says what kind of name each field of each message is, `kinds` what is done to a kind,
`message_plan` applies that to decoded messages, `frames` does the same to Produce and Fetch without decoding
them, and `translator` is the whole of one connection.
"""
