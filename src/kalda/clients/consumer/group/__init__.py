"""The consumer's membership of a group, by the classic protocol and by the consumer protocol (KIP-848).

`port.GroupPort` is what the consumer uses. `ClassicMembership` and `ConsumerMembership` implement it: they
send requests, and leave decisions to `ClassicMember` and `ConsumerMember`, which are pure.
"""
