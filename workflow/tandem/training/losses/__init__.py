"""Losses, one file each: functions of scores and labels, with the paper's equation beside the code.

A list is one query with its passages; the positive stands first. Shorter lists are padded, and `mask` is True where a
passage stands. Every reduction over queries is a *sum*: the caller divides by the number of queries of the whole batch,
so that a batch computed in parts has exactly the loss and gradient of one computed at once.
"""
