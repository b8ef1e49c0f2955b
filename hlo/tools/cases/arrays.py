"""Arrays in and out of text and files: --input, --inputs, --outputs, summaries and hashes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np

from hlo.errors import HloError
from hlo.hashing import hasher
from hlo.ir.dtype import DTYPES, from_numpy
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.printer.constants import constant_text
from hlo.printer.options import PrintOptions
from hlo.tools.cases.inputs import check_made, named_dtype
from hlo.tools.files.reading import read_bytes


def leaves(value: object) -> Iterator[np.ndarray]:
    """The arrays of a nested tuple in order; tokens (None) are left out."""
    if isinstance(value, tuple | list):
        for element in value:
            yield from leaves(element)
    elif value is not None:
        yield np.asarray(value)


def load_arrays(path: str) -> dict[str, np.ndarray]:
    """Arrays by name, of an npz or safetensors file; one of an npy file is called 0."""
    data = read_bytes(path)
    if data.startswith(np.lib.format.MAGIC_PREFIX):
        return {"0": load_npy(path, data)}
    from hlo.tools.files.safetensors import (  # made-up inputs need no files
        is_safetensors,
        safetensors,
    )

    if is_safetensors(data):
        return safetensors(data, path)
    return load_npz(path, data)


def load_npz(path: str, data: bytes | None = None) -> dict[str, np.ndarray]:
    """Arrays by name; `name:dtype` holds the bits of a type that NumPy cannot store."""
    if data is None:
        data = read_bytes(path)
    from hlo.tools.files.archives import unpacked  # made-up inputs need no files

    try:
        return dict(_restored(name, array) for name, array in unpacked(data, path))
    except HloError:
        raise
    except Exception as error:  # NumPy, zipfile and each decompressor have errors of their own
        raise _unreadable(path, "npz", error) from None


def load_npy(path: str, data: bytes | None = None) -> np.ndarray:
    """The array of an npy file, in this machine's order of bytes."""
    try:
        loaded = np.load(io.BytesIO(read_bytes(path) if data is None else data), allow_pickle=False)
    except Exception as error:  # NumPy's, and of the Python that reads the header
        raise _unreadable(path, "npy", error) from None
    if not isinstance(loaded, np.ndarray):
        raise HloError("file", f"{path} is an npz archive, expected an npy file: use --inputs")
    return native(loaded)


def native(array: np.ndarray) -> np.ndarray:
    """The same values in this machine's order of bytes."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _unreadable(path: str, kind: str, error: Exception) -> HloError:
    if isinstance(error, MemoryError):
        return HloError("memory", f"{path}: its arrays do not fit into memory: {error}")
    return HloError(
        "file", f"{path} is no readable {kind} file: {str(error) or type(error).__name__}"
    )


def _restored(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    plain, colon, dtype = name.partition(":")
    if not colon:
        return name, native(array)
    try:
        known = from_numpy(named_dtype(dtype))
    except TypeError:
        known = None
    if known is None or known.numpy is None:
        raise HloError("file", f"array {name}: {dtype} is no known type")
    return plain, array.view(known.numpy)


def arguments_from_npz(module: Module, arrays: dict[str, np.ndarray]) -> list[object]:
    """One value per entry parameter: leaves by its name, or as 0, in0, arg_0, arr_0, .."""
    count = 0
    values: list[object] = []
    for parameter in module.entry.parameters:
        if parameter.name in arrays and parameter.shape.is_array:
            values.append(as_written(arrays[parameter.name], parameter.shape))
            count += 1
            continue
        value, count = _nested(parameter, parameter.shape, arrays, count)
        values.append(value)
    return values


def _nested(
    parameter: Instruction, shape: Shape, arrays: dict[str, np.ndarray], count: int
) -> tuple[object, int]:
    if shape.is_tuple:
        elements = []
        for element in shape.elements:
            value, count = _nested(parameter, element, arrays, count)
            elements.append(value)
        return tuple(elements), count
    if not shape.is_array:
        return None, count
    for name in (str(count), f"in{count}", f"arg_{count}", f"arg{count}", f"arr_{count}"):
        if name in arrays:
            return as_written(arrays[name], shape), count + 1
    raise HloError(
        "arguments",
        f"inputs: there is no array for parameter {parameter.name} ({shape}), expected one named "
        f"{parameter.name} or in{count}; the file has {', '.join(list(arrays)[:8]) or 'none'}",
    )


def as_written(array: np.ndarray, shape: Shape) -> np.ndarray:
    """Bits of a type NumPy cannot store come back to it: npy files hold bf16 as V2 or uint16."""
    target = shape.dtype.numpy
    assert target is not None, "an array shape"
    if (
        array.dtype != target
        and array.dtype.kind == "V"
        and array.dtype.itemsize == target.itemsize
    ):
        return array.view(target)
    return array


INPUT = re.compile(r"(?:(?P<name>[A-Za-z_][\w.\-]*)=)?(?P<value>.*)", re.DOTALL)
IREE_SHAPE = re.compile(r"^(?P<dims>(?:\d+x)*)(?P<dtype>[a-z]+\d*\w*)$")
HLO_SHAPE = re.compile(r"^(?P<dtype>[a-z]+\d*\w*)\[(?P<dims>[\d,]*)\]$")


def parse_input(text: str) -> tuple[str | None, np.ndarray]:
    """`[NAME=]@x.npy`, `2x3xf32=1 2 3 4 5 6`, `f32[2,3]=1.0`: the name, the array."""
    name: str | None = None
    head, _, rest = text.partition("=")
    if rest and not _names_type(head):
        name, text = head, rest
        head, _, rest = text.partition("=")
    if text.startswith("@"):
        return name, load_npy(text[1:])
    return name, _from_words(head, rest, text)


def _names_type(head: str) -> bool:
    """Whether a text before `=` is a shape: a parameter may be called `p`, or `4xp`."""
    match = IREE_SHAPE.match(head)
    if match is None:
        return HLO_SHAPE.match(head) is not None
    return bool(match["dims"]) or match["dtype"] in DTYPES


def _from_words(head: str, rest: str, text: str) -> np.ndarray:
    match = IREE_SHAPE.match(head) or HLO_SHAPE.match(head)
    if match is None:
        raise HloError(
            "arguments",
            f"input {text!r} is not understood, expected f32[2,3]=VALUES, 2x3xf32=VALUES or "
            "@FILE.npy",
        )
    try:
        dims = tuple(int(n) for n in re.findall(r"\d+", match["dims"]))
    except ValueError:  # more digits than Python reads
        raise HloError("arguments", f"input: {head[:40]}... has a size too long to read") from None
    try:
        shape = Shape.array(match["dtype"], dims)
    except KeyError:
        raise HloError("arguments", f"input: {match['dtype']} is no element type") from None
    if not shape.is_array:
        raise HloError("arguments", f"input: {match['dtype']} is no element type")
    check_made(shape, "input")
    words = re.findall(r"[^\s,\[\]{}]+", rest)
    if len(words) not in (1, shape.size):
        raise HloError("arguments", f"input: {len(words)} values, expected 1 or {shape.size}")
    return np.broadcast_to(_numbers(words, shape), dims).copy()


def _numbers(words: list[str], shape: Shape) -> np.ndarray:
    numpy = shape.dtype.numpy
    try:
        if shape.dtype.is_pred:
            truth = {"true": True, "false": False, "1": True, "0": False}
            flat = np.array([truth[w] for w in words], np.bool_)
        elif shape.dtype.is_integral:
            flat = np.array([int(w) for w in words], object).astype(np.dtype(object))
            low, high = shape.dtype.int_range
            if any(not low <= v <= high for v in flat):
                raise HloError("arguments", f"input: a value is out of {shape.dtype}'s range")
            flat = np.array([int(v) for v in flat]).astype(numpy)
        elif shape.dtype.is_complex:
            flat = np.array([complex(w) for w in words]).astype(numpy)
        else:
            flat = np.array([float(w) for w in words]).astype(numpy)
    except (ValueError, KeyError, OverflowError):
        raise HloError(
            "arguments", f"input: {' '.join(words[:4])[:60]} are no {shape.dtype}"
        ) from None
    return flat.reshape(shape.dims) if len(words) == shape.size else flat.reshape(())


def summary(value: object) -> str:
    """One line a leaf: shape, least, greatest and mean of what is finite, NaNs and infinities."""
    return "\n".join(f"output {i}: {describe(array)}" for i, array in enumerate(leaves(value)))


def describe(array: np.ndarray) -> str:
    """Shape and what the values are like."""
    shape = Literal.of(array[()] if array.ndim == 0 else array).shape
    text = str(shape.without_layout()).split("{")[0]
    if array.size == 0:
        return f"{text} (no elements)"
    if array.dtype.kind == "b":
        return f"{text} {int(array.sum())} of {array.size} true"
    wide = np.abs(array).astype(np.float64) if array.dtype.kind == "c" else array.astype(np.float64)
    nans = int(np.isnan(wide).sum())
    with np.errstate(all="ignore"):
        finite = wide[np.isfinite(wide)]
        if finite.size == 0:
            return f"{text} no finite value, NaN {nans}  inf {wide.size - nans}"
        low, high, mean = finite.min(), finite.max(), finite.mean()
    infinite = int(np.isinf(wide).sum())
    more = f"  inf {infinite}" if infinite else ""
    prefix = "|x| " if array.dtype.kind == "c" else ""
    return f"{text} {prefix}min {low:.6g}  max {high:.6g}  mean {mean:.6g}  NaN {nans}{more}"


def full_text(array: np.ndarray) -> str:
    """Shape and all values as HLO writes a literal."""
    literal = Literal.of(array[()] if array.ndim == 0 else array)
    return f"{literal.shape} {constant_text(literal, PrintOptions())}"


def digest(value: object) -> str:
    """A hash of types, shapes and bits."""
    hashed = hasher()
    for array in leaves(value):
        hashed.update(f"{array.dtype.name}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]
