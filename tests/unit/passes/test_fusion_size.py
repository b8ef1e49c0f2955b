"""How many instructions a fusion holds: numbers are no instructions."""

from hlo import driver


def polynomial(terms: int) -> str:
    """A polynomial of so many products and sums, each number broadcast for itself."""
    lines = ["HloModule m", "ENTRY e {", "x = f32[4096] parameter(0)"]
    last = "x"
    for k in range(terms):
        lines += [
            f"k{k} = f32[] constant({k + 2})",
            f"b{k} = f32[4096] broadcast(k{k}), dimensions={{}}",
            f"m{k} = f32[4096] multiply({last}, x)",
            f"a{k} = f32[4096] add(m{k}, b{k})",
        ]
        last = f"a{k}"
    lines[-1] = "ROOT " + lines[-1]
    return "\n".join([*lines, "}"])


def fusions(terms: int) -> int:
    module = driver.optimize(driver.parse(polynomial(terms)), "fusion")
    return sum(i.opcode == "fusion" for i in module.entry.instructions)


def test_numbers_do_not_fill_a_fusion() -> None:
    assert fusions(72) == 1


def test_instructions_do() -> None:
    assert fusions(100) == 2


def rows_summed(rows: int) -> str:
    """A polynomial of each row of an array, picked at one place, and the sum of them."""
    lines = ["HloModule m", "ENTRY e {", f"x = f32[{rows},200] parameter(0)"]
    lines += ["i = s32[] parameter(1)", "sum0 = f32[] constant(0)"]
    for k in range(rows):
        lines += [
            f"w{k} = f32[1,200] slice(x), slice={{[{k}:{k + 1}], [0:200]}}",
            f"r{k} = f32[200] reshape(w{k})",
            f"d{k} = f32[1] dynamic-slice(r{k}, i), dynamic_slice_sizes={{1}}",
            f"p{k} = f32[] reshape(d{k})",
            f"e{k} = f32[1] slice(r{k}), slice={{[0:1]}}",
            f"q{k} = f32[] reshape(e{k})",
            f"m{k} = f32[] multiply(p{k}, q{k})",
            f"sum{k + 1} = f32[] add(sum{k}, m{k})",
        ]
    lines[-1] = "ROOT " + lines[-1]
    return "\n".join([*lines, "}"])


def test_rows_of_arrays_in_memory_are_read_where_they_lie() -> None:
    module = driver.optimize(driver.parse(rows_summed(40)), "fusion")
    fused = [i for i in module.entry.instructions if i.opcode == "fusion"]
    assert len(fused) > 1
    made = [e for i in fused for e in (i.shape.elements if i.shape.is_tuple else (i.shape,))]
    assert all(e.size == 1 for e in made)


def test_full_fusions_hold_their_numbers_too() -> None:
    text = polynomial(100).replace("add(m95, b95)", "add(m95, b1)")  # one that two fusions add
    module = driver.optimize(driver.parse(text), "fusion")
    assert not any(i.opcode == "broadcast" for i in module.entry.instructions)
