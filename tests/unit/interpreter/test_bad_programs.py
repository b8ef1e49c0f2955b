"""Odd sizes and wrong arguments: a value or a clear error, never another exception."""

import random

import numpy as np
import pytest

from hlo.driver import verify
from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse
from hlo.tools.cases.inputs import made_up_inputs
from tests.fuzz.test_verifier_fuzz import mutated, seeds

LARGEST = 100_000  # elements of a mutated program


def unary(shape: str, opcode: str = "negate") -> str:
    return f"HloModule m\nENTRY e {{ p = {shape} parameter(0)\n ROOT r = {shape} {opcode}(p) }}"


def test_thirty_dimensions() -> None:
    dims = (1,) * 29 + (2,)
    shape = f"f32[{','.join(map(str, dims))}]"
    order = ",".join(map(str, reversed(range(30))))
    turned = f"f32[{','.join(map(str, reversed(dims)))}]"
    text = f"HloModule m\nENTRY e {{ p = {shape} parameter(0)\n ROOT r = {turned} transpose(p), dimensions={{{order}}} }}"  # noqa: E501  # a program
    module = parse(text)
    verify(module)
    result = evaluate(module, np.arange(2, dtype=np.float32).reshape(dims))
    assert isinstance(result, np.ndarray)
    assert result.ravel().tolist() == [0, 1]


def test_more_dimensions_than_numpy_has() -> None:
    shape = f"f32[{','.join('1' * 70)}]"
    text = f"HloModule m\nENTRY e {{ c = f32[] constant(1)\n ROOT r = {shape} broadcast(c), dimensions={{}} }}"  # noqa: E501  # a program
    with pytest.raises(HloError) as raised:
        evaluate(parse(text))
    assert raised.value.code == "limit"


@pytest.mark.parametrize("dims", ["1" + ",1" * 99, "9223372036854775807,9223372036854775807"])
def test_inputs_beyond_numpy(dims: str) -> None:
    with pytest.raises(HloError) as raised:
        made_up_inputs(parse(unary(f"f32[{dims}]")))
    assert raised.value.code == "limit"


@pytest.mark.parametrize("dims", [(), (0,), (3, 0, 2), (0, 0)])
@pytest.mark.parametrize("opcode", ["negate", "exponential", "copy"])
def test_scalars_and_empty_arrays(dims: tuple[int, ...], opcode: str) -> None:
    shape = f"f32[{','.join(map(str, dims))}]"
    result = evaluate(parse(unary(shape, opcode)), np.zeros(dims, np.float32))
    assert isinstance(result, np.ndarray)
    assert result.shape == dims


def test_element_count_beyond_64_bits() -> None:
    with pytest.raises(HloError):
        verify(parse(unary("f32[4294967296,4294967296]")))


@pytest.mark.parametrize(
    "arguments",
    [(), (np.zeros(2, np.float32),) * 2, (np.zeros(3, np.float32),), ("text",), (None,),
     ((np.zeros(2, np.float32),),), (np.zeros((2, 1), np.float32),), ({},), (object(),)],
    ids=range(9),
)  # fmt: skip
def test_wrong_arguments(arguments: tuple[object, ...]) -> None:
    with pytest.raises(HloError) as raised:
        evaluate(parse(unary("f32[2]")), *arguments)
    assert raised.value.code == "arguments"


def test_computation_that_calls_itself() -> None:
    text = "HloModule m\nf { p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=f }\nENTRY e { p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=f }"  # noqa: E501  # a program
    with pytest.raises(HloError):
        parse(text)


@pytest.mark.parametrize("seed", range(2))
def test_mutated_programs_run_or_end_with_an_error(seed: int) -> None:
    random_ = random.Random(seed)
    texts = seeds()
    ran = [ended(mutated(random_.choice(texts), random_)) for _ in range(500)]
    assert ran.count("") > 20
    assert any(ran)


def ended(text: str) -> str:
    """Parses, verifies and runs a program; what its error says, if one ends it."""
    try:
        module = parse(text)
        verify(module)
        leaves = (leaf for c in module.computations for i in c.instructions
                  for leaf in i.shape.leaves() if leaf.is_array)  # fmt: skip
        if sum(leaf.size for leaf in leaves) > LARGEST:
            return "too large for a test"
        evaluate(module, *made_up_inputs(module), max_steps=100)
    except HloError as error:
        return str(error)
    return ""
