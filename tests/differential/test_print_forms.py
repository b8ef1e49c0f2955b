"""XLA's four print forms and its print options, byte for byte, and its verdicts on attributes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from hlo.errors import HloError
from hlo.parser.parse import parse
from hlo.printer.equality import difference
from hlo.printer.options import PrintOptions
from tests.support import oracle

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not oracle.available(), reason="needs jaxlib 0.10.2"),
]

FORMS = {
    "default": PrintOptions.xla_default(),
    "short_parsable": PrintOptions.short_parsable(),
    "canonical": PrintOptions.canonical(),
    "fingerprint": PrintOptions.fingerprint(),
}
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
CASES = Path(__file__).with_name("attribute_cases.txt")
LARGEST_IN_CI = 300_000


def check_forms(xla: oracle.Oracle, text: str, module: object) -> list[str]:
    """The names of the forms that differ; none where XLA itself cannot print."""
    wanted = xla.all_forms(text) or {}
    return [form for form, want in wanted.items() if module.to_text(FORMS[form]) != want]


def corpus_differences(xla: oracle.Oracle, files: list[Path]) -> list[str]:
    wrong = []
    for path in files:
        text = path.read_text()
        if "{...}" in text or not xla.accepts(text):
            continue
        module = parse(text, path.name)
        wrong += [f"{path.name}: {form}" for form in check_forms(xla, text, module)]
        if difference(module, parse(module.to_text())) is not None:
            wrong.append(f"{path.name}: does not read back")
    return wrong


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs ../shared/corpus")
def test_forms_of_the_corpus(xla: oracle.Oracle) -> None:
    files = [p for p in sorted(CORPUS.glob("*/*")) if p.stat().st_size <= LARGEST_IN_CI]
    assert corpus_differences(xla, files) == []


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs ../shared/corpus")
def test_forms_of_the_large_files(xla: oracle.Oracle) -> None:
    files = [p for p in sorted(CORPUS.glob("*/*")) if p.stat().st_size > LARGEST_IN_CI]
    assert corpus_differences(xla, files) == []


def sections() -> list[tuple[str, list[str]]]:
    """Templates with `$$` in them, and the texts to put there."""
    found: list[tuple[str, list[str]]] = []
    for line in CASES.read_text().splitlines():
        if line.startswith("== "):
            found.append((line[3:].replace("\\n", "\n"), []))
        else:
            found[-1][1].append(line)
    return found


def whole(template: str, value: str) -> str:
    if template.startswith("HEADER"):
        body = "p = f32[2] parameter(0)\n q = f32[2] parameter(1)\n"
        body = template[7:] or body + " ROOT t = (f32[2], f32[2]) tuple(p, q)"
        return f"HloModule m, {value}\nENTRY e {{ {body} }}"
    return f"HloModule m\nENTRY e {{ {template.replace('$$', value)}\n}}"


@pytest.mark.parametrize(("template", "values"), sections(), ids=lambda v: str(v)[-24:])
def test_verdicts_and_forms_of_attribute_texts(
    xla: oracle.Oracle, template: str, values: list[str]
) -> None:
    wrong = []
    for value in values:
        text = whole(template, value)
        accepted = xla.accepts(text)
        try:
            module = parse(text)
        except HloError:
            wrong += [f"{value}: rejected"] * accepted
            continue
        wrong += [f"{value}: accepted"] * (not accepted)
        if accepted:
            wrong += [f"{value}: {form}" for form in check_forms(xla, text, module)]
            if difference(module, parse(module.to_text())) is not None:
                wrong.append(f"{value}: does not read back")
    assert wrong == []


EVERYTHING = (Path(__file__).parent / "everything.hlo").read_text()
BOOLEANS = [
    "print_large_constants",
    "print_metadata",
    "print_backend_config",
    "compact_operands",
    "include_layout_in_shapes",
    "print_result_shape",
    "print_operand_shape",
    "print_operand_names",
    "print_program_shape",
    "print_percent",
    "print_control_dependencies",
    "canonicalize_instruction_names",
    "canonicalize_computations",
    "is_in_nested_computation",
    "print_ids",
    "print_extra_attributes",
]


@pytest.mark.parametrize("seed", range(60))
def test_print_options(xla: oracle.Oracle, seed: int) -> None:
    draw = random.Random(seed)
    form = draw.choice(list(FORMS))
    chosen: dict[str, object] = {
        name: draw.random() < 0.5 for name in draw.sample(BOOLEANS, draw.choice([1, 2, 6]))
    }
    chosen["indent_amount"] = draw.choice([0, 0, 1, 2])
    want = xla.to_string(EVERYTHING, form, **chosen)
    got = parse(EVERYTHING).to_text(replace(FORMS[form], **chosen))
    assert want in (None, got)


@pytest.mark.parametrize("name", BOOLEANS)
def test_each_print_option_alone(xla: oracle.Oracle, name: str) -> None:
    for value in (False, True):
        want = xla.to_string(EVERYTHING, "default", **{name: value})
        got = parse(EVERYTHING).to_text(replace(FORMS["default"], **{name: value}))
        assert want in (None, got)
