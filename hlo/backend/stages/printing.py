"""The stages of a compilation as text: --emit and --dump-to.

Compilation --stage_text--> text
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from hlo.backend.compilation import Compilation
from hlo.backend.linking import toolchain
from hlo.backend.stages.annotate import annotated
from hlo.backend.stages.loops_text import loops


class TextStage(Struct, frozen=True):
    """A stage that --emit shows: its name, the file ending of its text, and how it is made."""

    name: str
    ending: str
    text: Callable[[Compilation], str]


def _llvm_text(made: Compilation) -> str:
    return "\n".join(f"; module {n}\n{m}" for n, m in enumerate(made.ir))


STAGES = (
    TextStage("schedule", "txt", lambda made: str(made.schedule)),
    TextStage("buffers", "txt", lambda made: str(made.buffers)),
    TextStage("loops", "txt", loops),
    TextStage("program", "txt", lambda made: str(made.program)),
    TextStage("llvm", "ll", _llvm_text),
    TextStage("llvm-opt", "ll", lambda made: "\n".join(map(toolchain.optimised_text, made.ir))),
    TextStage("asm", "s", lambda made: "\n".join(map(toolchain.assembly, made.ir))),
)


def stage_text(
    made: Compilation, stage: str, kernel: str | None = None, *, remarks: bool = False
) -> str:
    """The text of one stage; KeyError for a name that is none.

    kernel: its loops, or its assembly beside HLO names; HloError for none of that name. remarks:
    why loops are what they are.
    """
    if stage == "loops":
        return loops(made, kernel, remarks=remarks)
    if kernel is not None:
        return annotated(made, kernel)
    return {s.name: s for s in STAGES}[stage].text(made)


def stage_texts(made: Compilation) -> Iterator[tuple[str, str]]:
    """(file name, text) of every stage, in order."""
    for stage in STAGES:
        yield f"{stage.name}.{stage.ending}", stage.text(made)
