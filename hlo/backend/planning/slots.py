"""Slots: the first places of a program's table of addresses, which are not cells."""

# At the head: the host call's address, what it is called with, the thread
# count, where a timed program counts; the rest is spare.
HEADER_SLOTS = 8
SLOT_HOST, SLOT_FRAME, SLOT_THREADS, SLOT_COUNTERS = 0, 1, 2, 3
