"""Words that functions and commands give a choice of.

They stand apart from what carries them out, so that a command's help, which lists them, imports
nothing else.
"""

MODES = ("strict", "fast")  # of numerics
INPUTS = ("normal", "model", "uniform", "small", "wild", "ints", "special", "onehot", "ramp",
          "zeros", "ones")  # fmt: skip
RIVALS = ("interpreter", "unoptimized", "fast", "f64", "jax")  # what a program is held against
ODD_VALUES = ("nan", "inf", "denormal")
COST_GROUPS = ("instruction", "opcode", "computation", "source", "op_name")
FORMS = ("text", "pb", "module-pb", "pbtxt", "json", "stablehlo", "stablehlo-bytecode")
