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
    assert fusions(48) == 1


def test_instructions_do() -> None:
    assert fusions(70) == 2
