"""The backend: optimised HLO -> plan, LLVM text, machine code.

The work is done in the rooms (docs/compiler.md). Here stands what puts them together, and what runs
where no compiled code does, or not by itself:

    compilation.py                   a program with all its stages
    refusals.py                      what is refused whatever the values are
    interpreted.py, padded.py        programs whose sizes change at run time
    host.py                          steps of a program that the reference computes
    probing.py                       code that notes where NaNs begin
    perf_labels.py                   what profilers of machine code call its functions
"""
