"""Collectives over replicas and partitions beside XLA:CPU on eight devices of a child process.

    evaluate_devices(program) = XLA's outputs, device by device, bit for bit

Values are small whole numbers, exact in any order of additions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from hlo.interpreter.evaluate import evaluate_devices
from hlo.parser.parse import parse
from tests.support.oracle import Oracle, available

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(not available(), reason="needs jaxlib 0.10.2"),
]
COUNTS = [(4, 1), (1, 4), (2, 2), (2, 4), (8, 1)]
TYPES = {"s32": np.int32, "f32": np.float32, "u8": np.uint8, "f64": np.float64, "c64": np.complex64}
SIZE = 8  # of both dimensions of every operand: all group sizes divide it


class Draw:
    """Random attributes for a number of replicas and partitions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.replicas, self.partitions = self.random.choice(COUNTS)
        self.dtype = self.random.choice(list(TYPES))

    def groups(self, opcode: str) -> tuple[str, int]:
        """Attributes that choose groups, in one of the four modes; devices in a group."""
        r, p = self.replicas, self.partitions
        modes = ["replica"]
        if opcode in ("all-to-all", "collective-permute"):
            modes += ["partition"] if p > 1 else []
        else:
            modes += ["both", "flattened"]
        mode = self.random.choice(modes)
        ids = {"replica": r, "partition": p, "both": r, "flattened": r * p}[mode]
        channel = "" if mode == "replica" else ", channel_id=1"
        if mode == "flattened":
            channel += ", use_global_device_ids=true"
        size = self.random.choice([n for n in (1, 2, 4, 8) if ids % n == 0])
        members = self.random.sample(range(ids), ids)
        lists = [members[k : k + size] for k in range(0, ids, size)]
        text = ",".join("{" + ",".join(map(str, group)) + "}" for group in lists)
        return f"replica_groups={{{text}}}{channel}", size * (p if mode == "both" else 1)

    def pairs(self) -> str:
        """Source and target pairs of a permute: some devices send, some to themselves."""
        by_partition = self.partitions > 1 and self.random.random() < 0.5
        ids = self.partitions if by_partition else self.replicas
        count = self.random.randint(1, ids)
        sources = self.random.sample(range(ids), count)
        targets = self.random.sample(range(ids), count)
        text = ",".join(f"{{{s},{t}}}" for s, t in zip(sources, targets, strict=True))
        return f"source_target_pairs={{{text}}}" + (", channel_id=1" if by_partition else "")


def program(seed: int) -> tuple[str, Draw]:
    """One collective, synchronous or as start and done, beside the replica's id."""
    d = Draw(seed)
    opcode = d.random.choice(
        ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
    )
    t, at = d.dtype, d.random.randrange(2)
    shape = f"{t}[{SIZE},{SIZE}]"
    result, more, size = shape, "", 1
    if opcode == "collective-permute":
        attributes = d.pairs()
    else:
        attributes, size = d.groups(opcode)
    if opcode not in {"all-reduce", "collective-permute"}:
        more += f", dimensions={{{at}}}"
    if opcode in ("all-reduce", "reduce-scatter"):
        more += ", to_apply=sum"
    dims = [SIZE, SIZE]
    if opcode == "all-gather":
        dims[at] *= size
    elif opcode == "reduce-scatter":
        dims[at] //= size
    result = f"{t}[{dims[0]},{dims[1]}]"
    call = f"r = {result} {opcode}(x), {attributes}{more}"
    own = {"all-reduce": result, "all-gather": f"({shape}, {result})",
           "collective-permute": f"({shape}, {result}, u32[], u32[])"}  # fmt: skip
    if d.partitions > 1:
        del own["all-gather"]  # XLA's importer gives it a layout, which its partitioner refuses
    if opcode in own and d.random.random() < 0.5:
        call = f"s = {own[opcode]} {opcode}-start(x), {attributes}{more}\n"
        call += f"  r = {result} {opcode}-done(s)"
    text = f"""HloModule m, replica_count={d.replicas}, num_partitions={d.partitions}

sum {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b)
}}

ENTRY e {{
  x = {shape} parameter(0)
  {call}
  i = u32[] replica-id()
  ROOT t = ({result}, u32[]) tuple(r, i)
}}
"""
    return text, d


@pytest.fixture(scope="module")
def xla() -> Iterator[Oracle]:
    server = Oracle(devices=8)
    yield server
    server.close()


def check(xla: Oracle, seed: int) -> None:
    text, d = program(seed)
    rng = np.random.default_rng(seed)
    count = d.replicas * d.partitions
    values = [[rng.integers(0, 9, (SIZE, SIZE)).astype(TYPES[d.dtype])] for _ in range(count)]
    ours = evaluate_devices(parse(text), values, replicas=d.replicas, partitions=d.partitions)
    theirs = xla.run_devices(text, values, d.replicas, d.partitions)
    assert not isinstance(theirs, str), f"{theirs}\n{text}"
    assert theirs is not None, text
    for device, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert isinstance(mine, tuple)
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_array_equal(a, b.reshape(np.shape(a)), f"device {device}\n{text}")


@pytest.mark.parametrize("seed", range(6))
def test_collectives_agree_with_xla(xla: Oracle, seed: int) -> None:
    check(xla, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_many_collectives_agree_with_xla(xla: Oracle, seed: int) -> None:
    check(xla, seed)
