"""Protocol buffers of modules, byte for byte what XLA writes of the same texts, and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo.errors import HloError
from hlo.formats import json_format, text_format, wire
from hlo.formats.message import Message
from hlo.formats.module_message import module_message
from hlo.formats.module_text import module_of
from hlo.parser.parse import parse
from tests.differential.test_print_forms import sections, whole
from tests.support import oracle
from tests.support.covering import sample
from tests.support.op_files import cases

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not oracle.available(), reason="needs jaxlib 0.10.2"),
]
SHARED = Path(__file__).parents[3] / "shared"
LARGEST_IN_CI = 100_000
PARTS = 3  # of the real programs, of which the first is run without -m slow
KIND = "HloModuleProto"


def in_one_order(message: Message) -> Message:
    """Without the id, a counter of XLA's process, and with maps, which have no order, sorted."""
    message.values.pop("id", None)
    instructions = [i for c in message.children("computations") for i in c.children("instructions")]
    for holder in (message, *instructions):
        held = holder.child("frontend_attributes")
        if "map" in held:
            held["map"] = sorted(held.children("map"), key=lambda e: e.text("key"))
    schedule = message.child("schedule")
    if "sequences" in schedule:
        schedule["sequences"] = sorted(
            schedule.children("sequences"), key=lambda e: e.number("key")
        )
    return message


def problems(xla: oracle.Oracle, text: str, name: str) -> list[str]:
    """What differs between XLA's message of a text and ours; none where XLA refuses the text."""
    try:
        module = parse(text, name)
        ours = wire.encode(in_one_order(module_message(module)))
    except HloError:
        return []
    written = xla.message(text)
    if written is None:
        return []
    message = wire.decode(written, KIND)
    wrong = [] if wire.encode(message) == written else [f"{name}: the codec"]
    if text_format.parse_text(text_format.print_text(message), KIND) != message:
        wrong.append(f"{name}: the text form")
    if json_format.parse_json(json_format.print_json(message), KIND) != message:
        wrong.append(f"{name}: the JSON form")
    if wire.encode(in_one_order(message)) != ours:
        wrong.append(f"{name}: the bytes")
    try:
        back = wire.encode(in_one_order(module_message(module_of(message, name))))
    except HloError as error:
        return [*wrong, f"{name}: does not read back: {error.message}"]
    return wrong if back == ours else [*wrong, f"{name}: reads back as another"]


def test_programs_of_every_opcode(xla: oracle.Oracle) -> None:
    right = [case for case in cases() if "ERROR" not in case.values]
    wrong = [p for case in right for p in problems(xla, case.text, str(case))]
    assert wrong == []


@pytest.mark.parametrize(("template", "values"), sections(), ids=lambda v: str(v)[-24:])
def test_attributes(xla: oracle.Oracle, template: str, values: list[str]) -> None:
    with_text = [value for value in values if "nan" not in value]  # whose sign has none
    wrong = [p for value in with_text for p in problems(xla, whole(template, value), value)]
    assert wrong == []


def test_everything_that_a_header_says(xla: oracle.Oracle) -> None:
    text = (Path(__file__).parent / "everything.hlo").read_text()
    assert problems(xla, text, "everything.hlo") == []


@pytest.mark.corpus
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
@pytest.mark.parametrize("part", sample(range(PARTS), PARTS))
def test_real_programs(xla: oracle.Oracle, part: int) -> None:
    files = [*SHARED.glob("corpus/files/*.hlo"), *SHARED.glob("suites/conformance/*.hlo")]
    small = [p for p in sorted(files) if p.stat().st_size <= LARGEST_IN_CI]
    wrong = [p for file in small[part::PARTS] for p in problems(xla, file.read_text(), file.name)]
    assert wrong == []
