"""fill_elided: values for constants whose text was left out as `{...}`."""

from __future__ import annotations

import numpy as np

from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.tools.cases.demands import NOTHING, Demand, demands
from hlo.tools.cases.inputs import generator, made_up_array
from hlo.verifier.verify import verify

Path = tuple[int, ...]
SCALE = 0.1  # of floats: products and sums of a few hundred of them stay near 1


def fill_elided(module: Module, seed: int = 0) -> Module:
    """A new module in which every elided constant has a value; other constants stay.

    Floats are normal with deviation 0.1; integers that a use takes as indices lie in its range,
    others in 0..9; pred is a fair coin. The values follow from seed and the order of the text.
    Raises HloErrors where there are any in a module that does not verify.

    >>> module = hlo.parse("HloModule m ENTRY e { ROOT c = f32[2,3] constant({...}) }")
    >>> hlo.evaluate(hlo.fill_elided(module)).shape
    (2, 3)
    """
    filled = clone_module(module)
    elided = [i for c in filled.computations for i in c.instructions if _is_elided(i)]
    if not elided:
        return filled
    verify(filled)
    asked = demands(filled)
    rng = generator(seed)
    for instruction in elided:
        literal, computation = instruction.attributes["literal"], instruction.computation
        assert isinstance(literal, Literal), "what elided constants have"
        assert computation is not None, "an instruction in a computation"
        value = _filled(literal, rng, asked.get(instruction, {}), ())
        computation.set_attributes(instruction, {**instruction.attributes, "literal": value})
    return filled


def _is_elided(instruction: Instruction) -> bool:
    literal = instruction.attributes.get("literal")
    return isinstance(literal, Literal) and literal.is_elided


def _filled(
    literal: Literal, rng: np.random.Generator, asked: dict[Path, Demand], path: Path
) -> Literal:
    if isinstance(literal.value, tuple):
        parts = (_filled(e, rng, asked, (*path, i)) for i, e in enumerate(literal.value))
        return Literal.of_tuple(tuple(parts))
    if literal.shape.is_tuple:
        empty = (Literal.elided(s) for s in literal.shape.elements)
        return _filled(Literal(literal.shape, tuple(empty)), rng, asked, path)
    if literal.value is not None:
        return literal
    return Literal.of(_made_up(literal.shape, rng, asked.get(path, NOTHING).limit), literal.shape)


def _made_up(shape: Shape, rng: np.random.Generator, limit: int | None) -> np.ndarray:
    if not (shape.dtype.is_float or shape.dtype.is_complex):
        return made_up_array(shape, "normal", rng, limit)
    wide = shape.with_dtype("c128" if shape.dtype.is_complex else "f64")
    with np.errstate(all="ignore"):
        drawn = SCALE * made_up_array(wide, "normal", rng)
        if shape.dtype.is_scale:
            drawn = np.abs(drawn)
        return np.asarray(drawn).astype(shape.dtype.numpy)
