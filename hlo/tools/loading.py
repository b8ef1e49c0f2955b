"""load_passes: a user's Python file that defines passes and rewrite rules.

    PASSES = {"my-pass": function}      a pass is `Module -> bool changed`, options by keyword
    @rewrite("divide")                  a rule of algsimp (hlo/passes/rewriting.py)

The file is run: it is the user's own code, named on the command line.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping

from hlo.errors import HloError
from hlo.passes.catalogue import CATALOGUE
from hlo.tools.files.reading import read_text

NAME = re.compile(r"[A-Za-z0-9_.\-]+")


def load_passes(path: str) -> tuple[str, ...]:
    """Run the file and enter what its PASSES names into the catalogue; the names of those.

    HloError `pipeline` where it fails, or names what is no pass.
    """
    read_text(path)  # that it is there, and no larger than inputs may be
    try:
        space = runpy.run_path(path)
    except Exception as error:  # whatever the user's code does
        raise HloError(
            "pipeline", f"{path}: running it raises {type(error).__name__}: {error}"
        ) from error
    passes = space.get("PASSES", {})
    if not isinstance(passes, Mapping):
        raise HloError("pipeline", f"{path}: PASSES is {passes!r}, expected names with functions")
    for name, function in passes.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or not callable(function):
            raise HloError(
                "pipeline", f"{path}: PASSES has {name!r}: {function!r}, expected a name such as "
                "my-pass and a function Module -> bool",
            )  # fmt: skip
        CATALOGUE[name] = function
    return tuple(passes)
