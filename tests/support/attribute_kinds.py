"""Every kind of attribute that the package defines."""

from __future__ import annotations

import importlib
import pkgutil

import hlo.attributes
from hlo.attributes.kind import AttributeKind


def all_kinds() -> list[AttributeKind]:
    found: dict[str, AttributeKind] = {}
    for info in pkgutil.iter_modules(hlo.attributes.__path__, "hlo.attributes."):
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, AttributeKind):
                found[value.name] = value
    return [found[name] for name in sorted(found)]
