"""Edit a module: turn every maximum into a minimum, and see that the result is another program."""

from pathlib import Path

import numpy as np

import hlo

text = Path(__file__).with_name("softmax.hlo").read_text()
module = hlo.parse(text, "softmax.hlo")
for computation in module.computations:
    for instruction in computation.instructions:
        if instruction.opcode == "maximum":
            lower = computation.new("minimum", instruction.shape, instruction.operands)
            computation.replace_uses(instruction, lower)
            computation.remove(instruction)
hlo.verify(module)
print(module)

rows = np.zeros((256, 512), np.float32)
before = hlo.evaluate(hlo.parse(text), rows)
after = hlo.evaluate(module, rows)
assert np.allclose(before, 1 / 512)
assert not np.array_equal(before, after)
