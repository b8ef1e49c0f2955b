"""The words of syntax errors: how tokens are spelled, what was expected, what is near."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hlo.ir.dtype import DTYPES
from hlo.ir.names import sanitised
from hlo.ops.foreign_names import NEAREST
from hlo.ops.table import OPS
from hlo.parser.kinds import is_opcode
from hlo.parser.lexer import END, Token
from hlo.parser.tables import tables
from hlo.parser.terminals import words

_NAMED = {
    "NAME": "a name",
    "IDENT": "a name",
    "TRANSPOSED": "'T'",
    "ATTR": "an attribute",
    "TYPE": "a shape",
    "SHAPE": "a shape",
    "BUFFER": "a shape",
    "DECIMAL": "a number",
    "INT": "an integer",
    "NEG_INF": "a number",
    "DIM_LABELS": "dimension labels such as b01f_01io->b01f",
    "DXD": "numbers joined by x",
    "PAD": "a padding such as 0_1x0_1",
    "STRING": "a string",
    "DICT": "a dictionary in braces",
    "LAYOUT": "a layout",
    END: "the end of the text",
}


def described(kinds: Iterable[str]) -> str:
    """A list of terminals in words."""
    signs = {kind: f"'{text}'" for kind, text in tables().words.items()}
    found = dict.fromkeys(_NAMED.get(k) or signs.get(k, "") for k in kinds)
    found.pop("", None)
    named = list(found)
    if not named:
        return "something else"
    if len(named) == 1:
        return named[0]
    return ", ".join(named[:-1]) + " or " + named[-1]


def spelled(token: Token) -> str:
    """What stands in the text."""
    if token.type == END:
        return "the text ends here"
    value = token.value if len(token.value) <= 40 else token.value[:37] + "..."
    if token.type == "ERROR" and not value.isprintable():
        return f"the character {value!r}"
    return f"'{value}'"


def near_opcode(word: str) -> str:
    """The opcode that a word means, or those that it is near to."""
    foreign = NEAREST.get(word)
    return f"did you mean {foreign!r}?" if foreign else near(word, OPS)


def near(word: str, words: Iterable[str]) -> str:
    """A suggestion, where one is close; up to three, in order, where several are equally so."""
    import difflib  # for faults alone

    found = difflib.get_close_matches(word, list(words), n=3, cutoff=0.6)
    closeness = [difflib.SequenceMatcher(None, w, word).ratio() for w in found]
    best = sorted(repr(w) for w, c in zip(found, closeness, strict=True) if c == closeness[0])
    return f"did you mean {' or '.join(best)}?" if best else ""


def reserved(token: Token) -> str:
    """A suggestion for a word of the language where a name should stand."""
    word = token.value
    if word not in words():
        return ""
    legal = sanitised(word)  # the names of element types stay forbidden behind a `%`
    return f"{word} is a reserved word; as a name write {'%' if legal == word else ''}{legal}"


def misread(before: Token | None, token: Token) -> str:
    """A suggestion for a word that was taken for an element type, or could have been one."""
    if token.type == "ERROR" and token.value in ("$", "<", "@"):
        return f"where {token.value} marks a place in a template, put in what belongs there first"
    if token.type == "HLO_MODULE":
        return "a text holds one module: cut it before this line"
    if before is None:
        return ""
    if before.type == "TYPE" and token.type != "LSQB":
        return reserved(before)
    return ""


_SHAPE_BEFORE = re.compile(r"([a-z]\w*)\[[^\[\]]*\]\Z")
_WORD_BEFORE = re.compile(r"([\w.\-%]+)[ \t]*$")
_OPENED = re.compile(r"(?m)^[ \t]*(?:ENTRY[ \t]+)?%?([\w.\-]+)[ \t]*(?:\([^\n]*->[^\n]*)?\{")


def meant(text: str, token: Token, *, in_operands: bool) -> str:
    """A suggestion for what is written so in other languages, or is only half written."""
    before = _WORD_BEFORE.search(text, max(0, token.start_pos - 80), token.start_pos)
    word = before[1] if before else ""
    if word != "HloModule" and word.lower() == "hlomodule":
        return "did you mean 'HloModule'?"
    if token.value == "\ufeff":
        return "a byte order mark, which XLA does not read either: save the text without one"
    if token.value == "#":
        return "a comment is /* .. */, or // to the end of the line"
    sized = _SHAPE_BEFORE.search(text, max(0, token.start_pos - 80), token.start_pos)
    if token.value == "{" and sized and sized[1] in DTYPES:
        return "a layout begins with a number or a colon, as f32[2,3]{1,0} has it, or is left out"
    if token.type == "ERROR" and token.value == '"':
        return "the string that begins here has no end"
    if "stablehlo." in text or "func.func" in text:
        return "StableHLO is read as a whole: module { func.func @main(..) { .. } }"
    if in_operands and word and token.type in ("IDENT", "NAME"):
        return f"operands are separated by commas: {word}, {token.value}"
    return _unclosed(text, token)


def _unclosed(text: str, token: Token) -> str:
    """Where the computation began that has no end before a token that belongs to none."""
    is_outside = token.type in (END, "ENTRY") or _OPENED.match(text, _line_start(text, token))
    opened = list(_OPENED.finditer(text, 0, token.start_pos))
    if not is_outside or not opened or opened[-1].start() == _line_start(text, token):
        return ""
    last = opened[-1]
    return f"the {{ of {last[1]} in line {text.count(chr(10), 0, last.end()) + 1} has no }}"


def _line_start(text: str, token: Token) -> int:
    return text.rfind("\n", 0, token.start_pos) + 1


def no_shape(before: Token | None, token: Token) -> tuple[str, str]:
    """What is wrong with a word that stands where a shape should, and a suggestion."""
    if before is None or before.type != "IDENT":
        return "", ""
    if token.type == "LSQB":
        message = f"{before.value} unknown, expected an element type such as f32"
        return message, near(before.value, DTYPES)
    if token.type == "IDENT" and is_opcode(token.value):
        return f"{before.value}, expected a shape such as f32[2,3] before {token.value}", ""
    return "", ""
