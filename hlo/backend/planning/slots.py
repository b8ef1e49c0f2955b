"""Slots: the first rows of a program's table of addresses, which are not allocations."""

# At the head: the address of the host call, what it is called with, the number of threads, and
# where a timed program counts.
HEADER_SLOTS = 16
SLOT_HOST, SLOT_FRAME, SLOT_THREADS, SLOT_COUNTERS = 0, 1, 2, 3
# Of a run that can be stopped (hlo/backend/entry/run_ir.py): why it has to stop (0: it goes on),
# nanoseconds of estimated work left until its loops look at the clock, when it next lets Python
# look at signals, when its time is over, and the main thread's state while it has given up the
# interpreter's lock.
SLOT_STOP, SLOT_FUEL, SLOT_NEXT, SLOT_DEADLINE, SLOT_MAIN = 4, 5, 6, 7, 8
# Who runs the parts of loops, of code that is compiled ahead of time.
SLOT_HOST_LOOPS = 9
# The calls of handlers, by the number of the host step; of code that is compiled ahead of time, the
# word that ends a call. The rest is spare.
SLOT_HANDLERS, SLOT_CANCEL = 10, 11
