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
# The calls of handlers, by the number of the host step.
SLOT_HANDLERS = 10
# Of code that is compiled ahead of time: who runs the parts of loops, and the word that ends a
# call. Where addresses are of 32 bits, why a run has to stop and the work left, which are of 64,
# take the rows from 8 to 11. The rest is spare.
SLOT_HOST_LOOPS, SLOT_CANCEL = 12, 13
# Of a listed program: its calls (hlo/backend/entry/call_list_ir.py).
SLOT_CALLS = 14
# Who runs parallel loops, of what a call has told (hlo/backend/entry/trials_ir.py).
SLOT_TEAM = 15
