"""Header: the text by which C and C++ call a program.

Interface --c_header--> NAME.h
          --cpp_header--> NAME.hpp, over the former

A header depends on the interface alone; numbers that a caller needs are constants, so that memory
may be reserved without running anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import hlo
from hlo.backend.ahead.interface import Interface, Leaf
from hlo.backend.entry.c_call_ir import (
    CALLBACK,
    FINE,
    NO_ADDRESS,
    NO_MACHINE,
    NONE,
    NOT_ALIGNED,
    NOT_ALLOWED,
    PTHREADS,
)
from hlo.backend.entry.cancel_ir import CANCELLED
from hlo.machine import ALIGNMENT

ERRORS = {
    FINE: ("OK", "no error"),
    NO_ADDRESS: ("NO_ADDRESS", "an input, an output or the arena is a null pointer"),
    NOT_ALIGNED: ("NOT_ALIGNED", f"the arena is not aligned to {ALIGNMENT} bytes"),
    NOT_ALLOWED: ("NOT_ALLOWED", "arrays have sizes at which the program has no result"),
    NO_MACHINE: ("NO_MACHINE", "the processor is none of the machines that there is code for"),
    CANCELLED: ("CANCELLED", "the caller's word has ended the call: there are no results"),
}


_THREADING = {
    NONE: "",
    PTHREADS: """
/* Calls run parallel loops on so many threads at most, MOST of them in any case; before it is
   called, on as many as there are processors. The threads are the object's own, made when they are
   first needed; the library must stay loaded. Link with -pthread. */
void NAME_set_threads(int count);
""",
    CALLBACK: """
#ifndef HLO_PARALLEL_FOR
#define HLO_PARALLEL_FOR
/* Who runs parallel loops. run calls part(task, w) for w = 0, 1, .. up to workers - 1, on any
   threads, at the same time or not, each w on one thread only, and returns when all have returned.
   It may leave some out: the others do their work. threads: the most workers. */
struct hlo_parallel_for {
  void (*run)(void *context, int64_t workers, void (*part)(void *task, int64_t worker), void *task);
  void *context;
  int64_t threads;
};
#endif
/* The same with the caller's threads, MOST of them at most; host may be null: none. */
int NAME_parallel(const void *const *inputs, void *const *outputs, void *arena,
                  const struct hlo_parallel_for *host);
""",
}
_SEVERAL = (
    "   The first call asks what the processor has; calls run the code for the last of these",
    "   that it has all of. The answer is one word, hlo_processor, for all objects of a library.",
)
_CANCELLABLE = """
/* The same until *cancel is not 0, which any thread may make it at any time: the call ends soon
   with PREFIX_CANCELLED, and what is in outputs then is undefined. cancel may be null. */
int NAME_cancellable(const void *const *inputs, void *const *outputs, void *arena,
                     const volatile int32_t *cancel);
"""
# Behind the caller's threads: the word too.
_CANCELLABLE_HOST = (
    "const struct hlo_parallel_for *host);",
    """const struct hlo_parallel_for *host,
                  const volatile int32_t *cancel);
/* Once *cancel is not 0, which any thread may make it at any time, the call ends soon with
   PREFIX_CANCELLED, and what is in outputs then is undefined. cancel may be null. */""",
)
_PLACES = {True: "/* in the object */", False: "/* an input */"}
_CALLED = """
/* A custom call, defined by whoever links: addresses of the operands' and the results' arrays. It
   gives 0, or a status, above 15 or below 0, that ends the call and is its caller's. */
int NAME(const void *const *operands, void *const *results);
"""


def c_header(made: Interface) -> str:
    """The header for C11, C++11 and later ones."""
    guard = f"{made.name.upper()}_H_{made.digest[:8].upper()}"
    parts = (
        _about(made),
        f"#ifndef {guard}\n#define {guard}\n\n#include <limits.h>\n#include <stdint.h>\n",
        "\n".join(_constants(made)),
        "\n".join(_assertions(made)),
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _function(made),
        "#ifdef __cplusplus\n}\n#endif\n",
        _error_text(made),
        _wrapper(made),
        f"#endif /* {guard} */\n",
    )
    return "\n".join(parts)


def cpp_header(made: Interface) -> str:
    """A class that holds the arena, over the header for C. C++17."""
    name = made.name
    guard = f"{name.upper()}_HPP_{made.digest[:8].upper()}"
    parameters = ", ".join(_parameters(made))
    call = ", ".join((*(leaf.name for leaf in _given(made)), "arena_.get()"))
    return f"""\
/* {name} for C++, over {name}.h. Made by hlo {hlo.__version__}; do not edit. */
#ifndef {guard}
#define {guard}

#include <memory>
#include <new>
#include <stdexcept>

#include "{name}.h"

namespace hlo_ahead {{

/* A program and the memory of one run. Objects are independent; calls of one are not. */
class {name} {{
 public:
  /* Raises std::runtime_error with the error's text. */
  void operator()({parameters}) {{
    const int status = ::{name}_call({call});
    if (status) throw std::runtime_error(::{name}_error_text(status));
  }}

 private:
  struct Free {{
    void operator()(void *memory) const {{
      ::operator delete(memory, std::align_val_t({name.upper()}_ALIGNMENT));
    }}
  }};
  std::unique_ptr<void, Free> arena_{{
      ::operator new({name.upper()}_ARENA_BYTES, std::align_val_t({name.upper()}_ALIGNMENT))}};
}};

}}  // namespace hlo_ahead

#endif  // {guard}
"""


def _about(made: Interface) -> str:
    rows = [
        f"/* {made.name}: the HLO module {_comment(made.module)}, compiled ahead of time by hlo "
        f"{hlo.__version__} for {', '.join(made.machines)}.",
        *(_SEVERAL if len(made.machines) > 1 else ()),
        "",
        "   Arrays are row-major, in the sizes that their comments give, and begin where their",
        "   elements may. No output overlaps another array, unless a comment says that it may be",
        "   an input's memory. The arena is memory of one call at a time and needs no",
        "   initialisation; calls on different arenas may run at once.",
        "   Made by a program; do not edit. */",
    ]
    return "\n".join(rows)


def _constants(made: Interface) -> Iterator[str]:
    prefix = made.name.upper()
    yield f'#define {prefix}_MODULE "{_quoted(made.module)}"'
    yield f'#define {prefix}_VERSION "{hlo.__version__}"'
    yield f'#define {prefix}_HASH "{made.digest}"'
    yield f'#define {prefix}_MACHINES "{",".join(map(_quoted, made.machines))}"'
    yield f"#define {prefix}_INPUTS {len(made.arguments)}"
    yield f"#define {prefix}_OUTPUTS {len(made.results)}"
    yield f"#define {prefix}_THREADS {made.threads}"
    yield f"#define {prefix}_ALIGNMENT {ALIGNMENT} /* of the arena */"
    yield f"#define {prefix}_ARENA_BYTES {_size(made.arena_bytes)}"
    place = _PLACES[made.weights < 0]
    yield f"#define {prefix}_CONSTANT_BYTES {_size(made.constant_bytes)} {place}"
    yield ""
    for what, leaves in (("INPUT", made.arguments), ("OUTPUT", made.results)):
        for number, leaf in enumerate(leaves):
            key = f"{prefix}_{what}_{number}"
            about = f"{leaf.name}: {_shape(leaf)}{_given_text(made, leaf)}"
            yield f"/* {what.lower()} {number}, {about} */"
            yield f"#define {key}_BYTES {_size(leaf.bytes)}"
            yield f"#define {key}_COUNT {_size(leaf.count)}"
    yield ""
    for code, (name, _) in ERRORS.items():
        yield f"#define {prefix}_{name} {code}"
    yield ""


def _assertions(made: Interface) -> Iterator[str]:
    """What the object and the caller's compiler have to agree about."""
    yield "#ifdef __cplusplus"
    yield "#define HLO_AHEAD_ASSERT(condition, text) static_assert(condition, text)"
    yield "#else"
    yield "#define HLO_AHEAD_ASSERT(condition, text) _Static_assert(condition, text)"
    yield "#endif"
    yield 'HLO_AHEAD_ASSERT(CHAR_BIT == 8, "bytes of 8 bits");'
    prefix = made.name.upper()
    for what, leaves in (("INPUT", made.arguments), ("OUTPUT", made.results)):
        for number, leaf in enumerate(leaves):
            if leaf.bytes:
                key = f"{prefix}_{what}_{number}"
                yield (
                    f"HLO_AHEAD_ASSERT({key}_COUNT * sizeof({leaf.type}) == {key}_BYTES, "
                    f'"{leaf.name}: {leaf.type}");'
                )
    yield "#undef HLO_AHEAD_ASSERT"
    yield ""


def _function(made: Interface) -> str:
    prefix = made.name.upper()
    called = "".join(_CALLED.replace("NAME", name) for name in made.functions)
    return f"""\
/* inputs: {prefix}_INPUTS addresses; outputs: {prefix}_OUTPUTS addresses; arena:
   {prefix}_ARENA_BYTES bytes, aligned to {prefix}_ALIGNMENT. {prefix}_OK, or an error's number. */
int {made.name}(const void *const *inputs, void *const *outputs, void *arena);
{_handing_over(made)}{called}"""


def _handing_over(made: Interface) -> str:
    """What hands over more, and says how many threads there are."""
    text = _THREADING[made.threading]
    if made.is_cancellable and made.threading == CALLBACK:
        text = text.replace(*_CANCELLABLE_HOST)
    elif made.is_cancellable:
        text += _CANCELLABLE
    prefix = made.name.upper()
    text = text.replace("MOST", f"{prefix}_THREADS").replace("PREFIX", prefix)
    return text.replace("NAME", made.name)


def _error_text(made: Interface) -> str:
    cases = "\n".join(
        f'    case {made.name.upper()}_{name}: return "{text}";' for name, text in ERRORS.values()
    )
    return f"""\
static inline const char *{made.name}_error_text(int error) {{
  switch (error) {{
{cases}
    default: return "the status of a function that the program calls";
  }}
}}
"""


def _given(made: Interface) -> Iterator[Leaf]:
    """The arrays that a call names."""
    yield from (leaf for leaf in (*made.arguments, *made.results) if leaf.is_array)


def _parameters(made: Interface) -> Iterator[str]:
    """C's parameters of the typed call, but for the arena."""
    for leaf in made.arguments:
        if leaf.is_array:
            yield f"const {leaf.type} *{leaf.name}"
    for leaf in made.results:
        if leaf.is_array:
            yield f"{leaf.type} *{leaf.name}"


def _wrapper(made: Interface) -> str:
    """The typed call."""
    parameters = ",\n    ".join((*_parameters(made), "void *arena"))
    inputs = _addresses("const void *const inputs", made.arguments)
    outputs = _addresses("void *const outputs", made.results)
    return f"""\
static inline int {made.name}_call(
    {parameters}) {{
  {inputs}
  {outputs}
  return {made.name}(inputs, outputs, arena);
}}
"""


def _addresses(declared: str, leaves: tuple[Leaf, ...]) -> str:
    """An array of addresses; C has none that are empty."""
    items = ", ".join(leaf.name if leaf.is_array else "0" for leaf in leaves) or "0"
    return f"{declared}[] = {{{items}}};"


def _shape(leaf: Leaf) -> str:
    """The HLO shape, and the sizes in memory where these are other ones."""
    text = _comment(leaf.text)
    if not leaf.is_array:
        return f"{text}, no bytes: any address"
    sizes = "".join(f"[{n}]" for n in leaf.shape.dims)
    parts = ", real and imaginary parts" if leaf.shape.dtype.is_complex else ""
    return f"{text}, {leaf.type}{sizes}{parts}"


def _given_text(made: Interface, leaf: Leaf) -> str:
    for pair in made.given:
        if made.results[pair.result] is leaf:
            return f"; may be the memory of input {pair.argument}"
    return ""


def _size(size: int) -> str:
    return str(size) if size < 1 << 31 else f"{size}LL"


def _comment(text: str) -> str:
    """A text that ends no comment."""
    return text.replace("*/", "* /").replace("/*", "/ *")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
