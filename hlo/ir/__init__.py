"""The data: element types, shapes, literals, instructions, computations, modules."""
