"""Block size: how a group of instructions is parted into blocks, if that pays.

    roots, members --best_block--> Block | None     fusion --block_of--> the one that its text says

A block's values between the members stay in a core's second-level cache instead of going through
memory; a matrix that all blocks multiply by is packed by each of them. Times are estimates in us.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from hlo.analysis.blocks.block import Block, Cut
from hlo.analysis.blocks.blocking import inner_members, loop_of, needed
from hlo.analysis.blocks.seen_columns import says_seen
from hlo.analysis.blocks.sums import is_in_order, is_summed
from hlo.analysis.decisions import Decisions, decisions_of
from hlo.analysis.fusibility import CONTRACTIONS, is_elementwise
from hlo.analysis.large_values import LEAST_SAVED_BYTES, padded_bytes
from hlo.indexing.queries import operand_dims
from hlo.ir.computation import Computation
from hlo.ir.graph import callees
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import COMMON, COMMON_LANES

LEAST_BLOCKS = 8  # So many blocks let threads finish together.
EVEN_BLOCKS = 4  # So do these, if there are two threads or four.
# What a block's values may take in the cache, beside the operands. A block's size says into which
# products a product is cut, hence the order of additions, so that COMMON's caches decide.
CACHE_BYTES = COMMON.second_cache.bytes * 3 // 4
# The same where no member is a product, whose factors every block packs anew: smaller blocks cost
# little, and a quarter of COMMON's cache is all that many machines have.
LIGHT_CACHE_BYTES = CACHE_BYTES // 4
# Where smaller blocks pack too often, they may take so many: a part of the cache that cores share.
MOST_CACHE_BYTES = COMMON.last_cache.bytes
LEAST_BLOCK_BYTES = 1 << 14  # In smaller blocks calls weigh more than what they do.
DEEPEST = 4
MOST_OVERLAP = 16  # One in so many elements of a dimension may be computed twice.
MOST_PARTS = 256
# Rows of blocks of scores of which each row sees some, unless there are more than so many times as
# many: what a block's last row sees is computed for all of them.
LEAST_SEEING, MOST_SEEING, SEEING_PARTS = 32, 128, 8


def block_of(fusion: Instruction) -> Block | None:
    """The block that a fusion's text says, if its body can be cut so; else the best one.

    Passes and planning ask for it again and again: it is found once for equal bodies that call what
    is equal.
    """
    (callee,) = fusion.called_computations()
    inside = {callee: None}
    waiting = [callee]
    while waiting:
        new = [c for c in callees(waiting.pop()) if c not in inside]
        inside |= dict.fromkeys(new)
        waiting += new
    states = tuple([c.contents_number for c in inside])
    said = decisions_of(fusion)
    known, key = callee.contents, (_block_of, said.block, said.lead)
    found: tuple[object, Block | None] | None = known.get(key)  # type: ignore[assignment]  # what is kept there below
    if found is None or found[0] != states:
        found = known[key] = states, _block_of(callee, said)
    return found[1]


def _block_of(callee: Computation, said: Decisions) -> Block | None:
    root = callee.root
    roots = root.operands if root.opcode == "tuple" else (root,)
    members = inner_members(callee) - ({root} - set(roots))
    for block in _said_blocks(said, roots):
        if needed(roots, block.all, block, members) is not None:
            return block
    if not any(map(loop_of, roots)):
        return best_block(roots, members)
    whole = (Block(b.lead, b.lead) for b in _said_blocks(Decisions(block=(1,)), roots))
    return next((b for b in whole if needed(roots, b.all, b, members) is not None), None)


def _said_blocks(said: Decisions, roots: Sequence[Instruction]) -> Iterator[Block]:
    """The block of a fusion's text, where results have such dimensions; of a loop, where any of its
    state has, the said ones if it says which: not all that trips write begins with them.
    """
    sizes = said.block
    loops = [loop for loop in map(loop_of, roots) if loop is not None]
    dims = [longer_dims(e) for x in loops for e in x.shape.elements if e.is_array]
    for lead in dict.fromkeys(d[: len(sizes)] for d in dims or _leading(roots)[:1]):
        if not sizes or len(lead) < len(sizes) or (loops and said.lead not in ((), lead)):
            continue
        if 1 <= sizes[-1] <= lead[-1] and set(sizes[:-1]) <= {1} and 0 not in lead:
            yield Block(lead, sizes)


def best_block(roots: Collection[Instruction], members: Collection[Instruction]) -> Block | None:
    """The largest block that fits the cache, of those that pay and give all threads enough to do.

    roots: members that are wanted.
    """
    between = sum(m.shape.size_bytes for m in members if m not in roots and m.shape.is_array)
    between += sum(map(padded_bytes, members))
    if between < LEAST_SAVED_BYTES:
        return None
    held = between - sum(m.shape.size_bytes for m in members if _takes_a_place(m, members, roots))
    blocks = [b for b in _blocks(roots) if _part(between, b) >= LEAST_BLOCK_BYTES]
    limit = CACHE_BYTES if any(map(_shared_sides, members)) else LIGHT_CACHE_BYTES
    if any(map(says_seen, members)):
        fine = [b for b in blocks if _is_fine(b)]
        even = [b for b in fine if b.lead[-1] % b.sizes[-1] == 0]
        blocks = even or fine or blocks
    near = [block for block in blocks if _part(held, block) <= limit]
    far = [b for b in blocks if limit < _part(held, b) <= MOST_CACHE_BYTES]
    # What is a sum over blocks, and what can be cut, does not depend on the sizes.
    leads = {b.lead: b for b in blocks}
    sums = {lead: [root for root in roots if is_summed(root, b)] for lead, b in leads.items()}
    known: dict[tuple[int, ...], set[Cut] | None] = {}
    for fitting in (near, far):
        ranked = [((_evenness(units_of(sums[b.lead], b)), _part(between, b)), b) for b in fitting]
        ranked.sort(key=lambda one: one[0], reverse=fitting is near)
        for (evenness, _), block in ranked:
            if not evenness:
                continue
            if block.lead not in known:
                known[block.lead] = needed(roots, block.all, block, members)
            found = known[block.lead]
            if found is not None and _pays(roots, found, members, block, between):
                return block
    return None


def _is_fine(block: Block) -> bool:
    """Whether a block has so few rows that they see about the same columns."""
    rows, size = block.lead[-1], block.sizes[-1]
    return LEAST_SEEING <= size <= max(MOST_SEEING, rows // SEEING_PARTS)


def units_of(sums: Collection[Instruction], block: Block) -> int:
    """How many parts may run at once: blocks, or rows of blocks where some roots add up a sum."""
    parts = sum_parts(block, in_order=any(map(is_in_order, sums)))
    return block.parts(block.depth - 1) * parts if sums else block.count


def sum_parts(block: Block, *, in_order: bool) -> int:
    """In how many parts, added up at the end, blocks in a row make a sum over blocks: one, or
    several where there are too few rows for all threads. It does not depend on the threads.
    """
    if in_order:
        return 1
    rows = block.parts(block.depth - 1)
    wanted = 1 if _evenness(rows) else -(-LEAST_BLOCKS // rows)
    return min(wanted, block.count // rows)


def _part(size: int, block: Block) -> int:
    """A block's share of so many bytes."""
    return size * math.prod(block.sizes) // math.prod(block.lead)


def _takes_a_place(
    instruction: Instruction, members: Collection[Instruction], roots: Collection[Instruction]
) -> bool:
    """Whether a value between members is written over an operand that nothing else reads."""
    maker = instruction
    if instruction.opcode == "get-tuple-element":
        (maker,) = instruction.operands
        sizes = [leaf.size_bytes for leaf in maker.shape.leaves()]
        if sizes.count(instruction.shape.size_bytes) > 1:
            return False  # one of them does, at most
    if instruction in roots or not (maker.opcode == "fusion" or is_elementwise(maker)):
        return False
    return instruction.shape.is_array and any(
        operand in members
        and operand not in roots
        and operand.opcode != "parameter"
        and len(operand.users) == 1
        and operand.shape.size_bytes == instruction.shape.size_bytes
        for operand in maker.operands
    )


def _evenness(count: int) -> int:
    """How surely threads that take so many blocks are busy until the end; 0: not enough."""
    if count >= 2 * LEAST_BLOCKS:
        return 3
    return 2 if count >= LEAST_BLOCKS else int(count == EVEN_BLOCKS)


def _blocks(roots: Collection[Instruction]) -> Iterator[Block]:
    """Whole leading dimensions but for the last of them, and parts of that."""
    dims = _leading(roots)
    if not dims:  # nothing outside wants a member
        return
    for depth in range(1, min(DEEPEST, *map(len, dims), DEEPEST) + 1):
        lead = dims[0][:depth]
        if any(d[:depth] != lead for d in dims) or not math.prod(lead):
            return
        for size in part_sizes(lead[-1]):
            if size < lead[-1] or depth > 1:
                yield Block(lead, (*(1,) * (depth - 1), size))


def _leading(roots: Collection[Instruction]) -> list[tuple[int, ...]]:
    """The longer dimensions of what blocks of the roots part: the results' own, but of those that
    may be sums over blocks the factors'.
    """
    return [
        dims
        for root in roots
        for dims in (summed_dims(root) or map(longer_dims, root.shape.leaves()))
    ]


def summed_dims(root: Instruction) -> list[tuple[int, ...]]:
    """The leading dimensions of a dot's factors, or a scatter's updates, by which it is a sum over
    blocks, if it is one.

    Asked again for every group that a product may be in.
    """
    if root.opcode not in ("dot", "scatter"):
        return []
    if root.computation is None:
        return _summed_dims(root)
    known, key = root.computation.facts, (_summed_dims, root)
    if key not in known:
        known[key] = _summed_dims(root)
    return known[key]  # type: ignore[return-value]  # what is kept there above


def _summed_dims(root: Instruction) -> list[tuple[int, ...]]:
    added = root.operands[0 if root.opcode == "dot" else -1]
    dims = longer_dims(added.shape)
    leads = (dims[:depth] for depth in range(1, min(DEEPEST, len(dims)) + 1))
    return [lead for lead in leads if is_summed(root, Block(lead, (1,) * len(lead)))]


def longer_dims(shape: Shape) -> tuple[int, ...]:
    """The sizes of the dimensions that have not just one element."""
    return tuple(n for n in shape.dims if n != 1)


@lru_cache(maxsize=1024)
def part_sizes(n: int) -> tuple[int, ...]:
    """The divisors of a positive number, and sizes in whole vectors whose last part overlaps the
    one before by little."""
    found = set(divisors(n))
    for count in range(2, min(MOST_PARTS, n) + 1):
        size = -(-n // count // COMMON_LANES) * COMMON_LANES
        if size <= n and -(-n // size) * size - n <= n // MOST_OVERLAP:
            found.add(size)
    return tuple(sorted(found))


MOST_TRIED = 1 << 16


def divisors(n: int) -> list[int]:
    """The divisors of a positive number, in order: of those from 2^32 on the pairs of which one is
    small, for the others take as long to find as the number is large.
    """
    low = [d for d in range(1, min(math.isqrt(n), MOST_TRIED) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def _pays(
    roots: Collection[Instruction],
    found: set[Cut],
    members: Collection[Instruction],
    block: Block,
    between: int,
) -> bool:
    """Whether what stays in the cache outweighs what every block has to pack again, and the sums
    over blocks that it reads and writes.
    """
    rates = COMMON.rates
    saved = 2 * between * (1 / rates.memory_bytes - 1 / rates.cached_bytes)
    packed = sum(_packed_bytes(i, block) for i, _ in found if i in members)
    rows = block.parts(block.depth) // block.parts(block.depth - 1)
    sums = [root for root in roots if is_summed(root, block)]
    parts = sum_parts(block, in_order=any(map(is_in_order, sums)))
    rows += parts if parts > 1 else 0  # each is read and written once more in the end
    added = sum(root.shape.size_bytes for root in sums)
    return (packed + 2 * rows * added) / rates.cached_bytes <= saved


def _packed_bytes(instruction: Instruction, block: Block) -> int:
    """The bytes that all blocks read and write to pack a right side that they share."""
    total = 0
    for batch, size in _shared_sides(instruction):
        parts = block.parts(min(block.depth, batch))
        total += 2 * size * (block.count // parts - 1)
    return total


def _shared_sides(instruction: Instruction) -> Sequence[tuple[int, int]]:
    """Of the contraction that an instruction is, or those inside of a fusion: how many dimensions
    its batch has, and the bytes of its right side.
    """
    if instruction.opcode == "fusion":
        return [side for c in instruction.called_computations() for side in c.fact(_sides_within)]
    return (_shared_side(instruction),) if instruction.opcode in CONTRACTIONS else ()


def _sides_within(computation: Computation) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    waiting = [computation]
    while waiting:
        for instruction in waiting.pop().instructions:
            if instruction.opcode == "fusion":
                waiting += instruction.called_computations()
            elif instruction.opcode in CONTRACTIONS:
                found.append(_shared_side(instruction))
    return tuple(found)


def _shared_side(contraction: Instruction) -> tuple[int, int]:
    lengths = zip(contraction.shape.dims, operand_dims(contraction)[0], strict=True)
    batch = sum(n != 1 and None not in pair for n, pair in lengths)
    return batch, contraction.operands[1].shape.size_bytes
