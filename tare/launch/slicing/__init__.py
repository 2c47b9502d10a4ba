"""Sliced rounds: several jobs share the machine by turns of some 40 ms, so that all meet the same conditions.

Every job is started and held at its first instruction (tare.launch.barrier). Then exactly one runs at a time, all
others are frozen (`freezing`), until each has ended (`rounds`). How long a slice is follows from how long each job
is expected to take (`pacing`), so that all are equally far at any time.
"""
