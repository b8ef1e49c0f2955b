"""Enumerations: one word of a closed list; the value is the word as XLA prints it."""

from __future__ import annotations

from collections.abc import Callable

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, tokens
from hlo.errors import Violation


def _word(text: str, words: tuple[str, ...], fold: Callable[[str], str]) -> str:
    word = fold(text)
    if word not in words:
        raise Violation("attribute-value", "", text, "one of " + ", ".join(words))
    return word


def _enum(name: str, words: str, fold: Callable[[str], str] = str) -> AttributeKind:
    """fold: str where case matters, else what makes the printed case (str.lower, str.upper)."""
    allowed = tuple(words.split())

    def build(tree: Tree) -> str:
        (text,) = tokens(tree, "IDENT")
        return _word(text, allowed, fold)

    return AttributeKind(name, "kind_enum", build, str, words=allowed)


FUSION_KIND = _enum("FUSION_KIND", "kLoop kInput kOutput kCustom")
DIRECTION = _enum("DIRECTION", "EQ NE GE GT LE LT")
COMPARISON_TYPE = _enum("COMPARISON_TYPE", "FLOAT TOTALORDER SIGNED UNSIGNED")
FFT_TYPE = _enum("FFT_TYPE", "FFT IFFT RFFT IRFFT")
PADDING_TYPE = _enum("PADDING_TYPE", "PADDING_VALID PADDING_SAME PADDING_INVALID")
TRANSPOSE = _enum("TRANSPOSE", "NO_TRANSPOSE TRANSPOSE ADJOINT TRANSPOSE_INVALID")
DISTRIBUTION = _enum("DISTRIBUTION", "rng_uniform rng_normal rng_invalid", str.lower)
RNG_ALGORITHM = _enum("RNG_ALGORITHM", "rng_default rng_three_fry rng_philox", str.lower)
DOT_ALGORITHM = _enum(
    "DOT_ALGORITHM",
    "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 "
    "dot_bf16_bf16_bf16 dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 "
    "dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64",
    str.lower,
)
CONVOLUTION_KIND = _enum("CONVOLUTION_KIND", "fprop wgrad dgrad unset")
SCHEDULE = _enum("SCHEDULE", "SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST", str.upper)
API_VERSION = _enum(
    "API_VERSION",
    "API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING API_VERSION_STATUS_RETURNING_UNIFIED "
    "API_VERSION_TYPED_FFI",
    str.upper,
)
COLLECTIVE_MODE = _enum(
    "COLLECTIVE_MODE",
    "cross_replica cross_partition cross_replica_and_partition flattened_id",
)

PRECISIONS = ("default", "high", "highest")


def _precisions(tree: Tree) -> tuple[str, ...]:
    return tuple(_word(text, PRECISIONS, str.lower) for text in tokens(tree, "IDENT"))


def _precisions_text(precisions: tuple[str, ...]) -> str:
    return "{" + ",".join(precisions) + "}"


OPERAND_PRECISION = AttributeKind(
    "OPERAND_PRECISION", "kind_operand_precision", _precisions, _precisions_text
)
