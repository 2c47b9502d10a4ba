"""Statistics of sliced rounds: whole jobs that advance in slices, one at a time; numbers in, numbers out.

A round launches every environment and the host a second time. A launch's own time is the sum of its slices. A slice
is a payment, not an observation: the round is the unit of every interval.
"""
