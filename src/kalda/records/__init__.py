"""Record batches: the bytes that producers send, the log keeps and consumers read. Sans-IO.

What is not here: legacy message sets (magic 0 and 1), which are recognised and refused.
"""
