"""What a compiled program would refuse when it is called, for any values, `compile` refuses."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.planning.families import kernel_makers
from hlo.errors import HloError
from hlo.ops.custom_call import CALLBACK, CALLBACKS, register_custom_call
from hlo.ops.custom_targets import IDENTITIES, REGISTERED, TARGETS
from hlo.ops.table import OPS, KernelFamily, Trait, opcodes
from hlo.passes.manager import Manager
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.op_files import Case, cases

ROOT = Path(__file__).parents[3]
CALL = """HloModule m
ENTRY e {{
{operands}
  ROOT c = {shape} custom-call({names}), custom_call_target="{target}"
}}"""
SIGNATURES = {
    "one": (["{t}[4,4]"], "{t}[4,4]"),
    "two": (["{t}[4,4]", "{t}[4,3]"], "{t}[4,3]"),
    "not square": (["{t}[4,3]"], "({t}[4,3], s32[])"),
    "on the right": (["{t}[4,4]", "{t}[3,4]"], "{t}[3,4]"),
    "mixed": (["{t}[4,4]", "f16[4,4]"], "f16[4,4]"),
    "short": (["{t}[4,4]", "{t}[4]"], "{t}[4,4]"),
    "factor": (["{t}[4,4]"], "({t}[4,4], s32[])"),
    "cut": (["{t}[4,4]"], "({t}[3,3], s32[])"),
    "lu": (["{t}[2,4,4]"], "({t}[2,4,4], s32[2,4], s32[2])"),
    "other batch": (["{t}[2,4,4]"], "({t}[3,4,4], s32[3,4], s32[3])"),
    "flat": (["{t}[4]"], "({t}[4], {t}[4])"),
    "wide": (["{t}[4,4]"], "({t}[4,4], {t}[4], {t}[4,4], {t}[4,4], s32[])"),
    "none": ([], "{t}[4]"),
}
TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}


def text(target: str, signature: str) -> str:
    operands, shape = SIGNATURES[signature]
    letter = target.removeprefix("lapack_")[:1] if target.startswith("lapack_") else "s"
    rows = [f"  p{n} = {o} parameter({n})" for n, o in enumerate(operands)]
    names = ", ".join(f"p{n}" for n in range(len(operands)))
    made = CALL.format(operands="\n".join(rows), shape=shape, names=names, target=target)
    return made.replace("{t}", TYPES[letter])


@pytest.mark.parametrize("target", [*CALLBACKS, "nobody_knows_it"])
@pytest.mark.parametrize("passes", ["default", ""])
def test_compile_refuses_what_no_file_can_name(target: str, passes: str) -> None:
    module = hlo.parse(text(target, "one"))
    with pytest.raises(HloError) as when_compiled:
        hlo.compile(module, passes=passes, cache=False)
    with pytest.raises(HloError) as when_evaluated:
        hlo.evaluate(module, np.ones((4, 4), np.float32))
    assert when_compiled.value.code == "unsupported"
    assert str(when_compiled.value) == str(when_evaluated.value)


def test_compile_refuses_a_callback_in_a_branch_and_beside_dynamic_sizes() -> None:
    target = CALLBACKS[0]
    branch = f"""HloModule m
yes {{ x = f32[3] parameter(0) ROOT c = f32[3] custom-call(x), custom_call_target="{target}" }}
no {{ ROOT x = f32[3] parameter(0) }}
ENTRY e {{ p = pred[] parameter(0)
  x = f32[3] parameter(1)
  ROOT c = f32[3] conditional(p, x, x), true_computation=yes, false_computation=no }}"""
    sized = f"""HloModule m
ENTRY e {{ x = f32[<=3] parameter(0)
  ROOT c = f32[<=3] custom-call(x), custom_call_target="{target}" }}"""
    for source in (branch, sized):
        with pytest.raises(HloError, match="the process that traced"):
            hlo.compile(hlo.parse(source), cache=False)


@pytest.mark.usefixtures("registry")
def test_a_callback_with_a_function_compiles() -> None:
    register_custom_call(CALLBACKS[0], lambda x: x + 1)
    run = hlo.compile(hlo.parse(text(CALLBACKS[0], "one")), cache=False)
    assert np.array_equal(run(np.ones((4, 4), np.float32)), np.full((4, 4), 2, np.float32))


def check_any_signature(target: str) -> None:
    """Whatever a target gets: no other exception, no crash, `unsupported` only from compile."""
    for signature in SIGNATURES:
        module = hlo.parse(text(target, signature))
        try:
            run = hlo.compile(module, cache=False)
        except HloError:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of values that fit no routine
            assert code_of(run, module) != "unsupported", f"{target}, {signature}"


def code_of(run: Callable[..., object], module: hlo.Module) -> str | None:
    try:
        run(*made_up_inputs(module))
    except HloError as error:
        return error.code
    return None


OTHER_TYPES = re.compile("lapack_[dc]")  # the same code as for the types that CI looks at


@pytest.mark.parametrize("target", [t for t in TARGETS if not OTHER_TYPES.match(t)])
def test_calls_of_any_signature_are_refused_by_compile_or_run(target: str) -> None:
    check_any_signature(target)


@pytest.mark.slow
@pytest.mark.parametrize("target", [t for t in TARGETS if OTHER_TYPES.match(t)])
def test_calls_of_any_signature_and_type_are_refused(target: str) -> None:
    check_any_signature(target)


def refused_when_run(case: Case) -> bool:
    return any(code.startswith("unsupported") for code in case.values.get("RUN-ERROR", []))


@pytest.mark.parametrize("case", [c for c in cases() if refused_when_run(c)], ids=str)
def test_compile_refuses_every_opcodes_programs_that_running_refuses(case: Case) -> None:
    with pytest.raises(HloError) as caught:
        hlo.compile(hlo.parse(case.text), cache=False)
    assert caught.value.code == "unsupported"


# -- the list in docs/running.md -------------------------------------------------------------------


def listed() -> set[str]:
    page = (ROOT / "docs/running.md").read_text()
    section = page.split("## What still runs on the reference")[1].split("\n## ")[0]
    host_steps = section.split("What the reference would refuse")[0]
    return set(re.findall(r"`([^`]+)`", host_steps))


def written_by_passes(name: str) -> bool:
    files = (ROOT / "hlo/passes").rglob("*.py")
    return any(f'"{name}"' in file.read_text() for file in files)


def test_the_page_lists_the_targets_that_run_on_the_reference() -> None:
    with_kernels = {t for t in TARGETS if kernel_makers(hlo.parse(text(t, "one")).entry.root)}
    compiled = {*IDENTITIES, *with_kernels, *CALLBACKS, *REGISTERED}  # by other tests
    # handlers and functions of this process that other tests register
    of_tests = ("hlo_test_", "hlo_jax_", f"{CALLBACK}.")
    expected = {
        t
        for t in TARGETS
        if t not in compiled and not written_by_passes(t) and not t.startswith(of_tests)
    }
    assert expected == {name for name in listed() if name in TARGETS}


def test_the_page_lists_the_opcodes_that_run_on_the_reference() -> None:
    alone = opcodes(Trait.COLLECTIVE) - {
        "ragged-all-to-all"
    }  # on one device they are their operands
    host = (
        {o for o, row in OPS.items() if row.family is KernelFamily.HOST} - alone - {"custom-call"}
    )
    expected = {o for o in host if not written_by_passes(o)}
    assert expected <= listed()
    assert listed() & OPS.keys() <= host


ELIDED = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  c = f32[4] constant({...})
  d = f32[4] add(c, c)
  ROOT t = f32[4] OPERATION
}
"""


def test_a_value_that_is_left_out_is_missed_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(*_: object) -> object:
        raise AssertionError("a pass ran")

    needed = Compilation(hlo.parse(ELIDED.replace("OPERATION", "multiply(x, d)")))
    monkeypatch.setattr(Manager, "run", work)
    with pytest.raises(HloError, match="constant: the value of c is"):
        _ = needed.executable


def test_a_value_that_is_left_out_and_not_needed_is_not_missed() -> None:
    made = hlo.compile(hlo.parse(ELIDED.replace("OPERATION", "negate(x)")))
    assert np.asarray(made(np.ones(4, np.float32))).tolist() == [-1.0] * 4
