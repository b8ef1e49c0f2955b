"""What the system says of a 64-bit Arm, in LLVM's names."""

from __future__ import annotations

from hlo.backend.isa.arm_features import ALWAYS, listed
from hlo.machine import described

TRIPLE = "aarch64-unknown-linux-gnu"
GRAVITON_2 = (
    "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 "
    "atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs\nCPU implementer\t: 0x41\n"
)
GRAVITON_3 = GRAVITON_2.replace("ssbs", "sve svebf16 i8mm bf16 ssbs")


def test_features_find_a_description() -> None:
    found = [described(TRIPLE, ALWAYS | listed(text)) for text in ("", GRAVITON_2, GRAVITON_3)]
    assert [m.name for m in found] == ["armv8-a", "neoverse-n1", "neoverse-v1"]


def test_a_feature_is_what_every_processor_has() -> None:
    both = GRAVITON_3 + GRAVITON_2.replace("processor\t: 0", "processor\t: 1")
    assert listed(both) == listed(GRAVITON_2) == {"dotprod", "fullfp16", "rdm"}
    assert listed(GRAVITON_2.replace(" asimdhp", "")) == {"dotprod", "rdm"}


def test_words_of_other_vectors_are_not_taken_for_these() -> None:
    assert listed("Features\t: fp asimd sve svebf16 svei8mm\n") == frozenset()
