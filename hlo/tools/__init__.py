"""What users do with modules beside the straight line, a room for each kind of thing.

    cases        a module with arguments: made up, read, cut out of others, made smaller, tried
    comparison   two results, two modules: what differs, how much, whether it counts
    faults       which pass, instruction or kernel is wrong, and where NaNs begin
    inspection   what a module consists of and costs; queries, graphs, reports
    editors      the standard form, completion, the language server
    files        reading and writing without losing a file
    jax          the door to JAX and the real XLA:CPU behind it

Beside the rooms: timing (bench.py), comparisons as functions of Python (comparing.py), the prompt
(repl.py), passes of users (loading.py), C compilers (c_compiler.py).
"""
