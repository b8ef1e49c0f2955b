"""The backend: optimised HLO -> plan, LLVM text, machine code.

The work is done in the rooms (docs/compiler.md). Here stands what puts them together and looks at
what came of it:

    compilation.py                                 a program with all its stages
    stages.py, loops_text.py, annotate.py          what --emit prints of them
    refusals.py, interpreted.py, padded.py,        programs, and steps of theirs, that no compiled
    host.py, probing.py                            code runs, or not by itself
    ahead_of_time.py, ahead_level.py               programs as files
    code_work.py, code_trips.py, code_folding.py,  what a kernel takes, counted in its code
    reuse.py
    limits.py, meter.py, cycles.py                 what this machine can do, measured
    profile.py, timeline.py, plan_rows.py,         where time and memory go, measured beside
    code_times.py, memory_map.py, perf_labels.py   estimates
"""
