"""The share consumer (KIP-932): one session for each broker, and one member of a share group."""
