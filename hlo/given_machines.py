"""Given machines: what code is compiled for as a user says it, by a file or by features.

{"name": "mine", "triple": .., "features": [..], ..} --from_json--> Machine
Machine, "+avx2,-fma" --with_features--> Machine
Machine or name --machine_of--> Machine
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from hlo.errors import HloError
from hlo.machine import CHOICES, NAMED, Machine, described, named, near


def machine_of(wanted: object) -> Machine:
    """A machine, or the one with this name; HloError for what is neither."""
    if isinstance(wanted, str):
        return named(wanted)
    if not isinstance(wanted, Machine):
        found = type(wanted).__name__
        raise HloError("arguments", f"machine: {found}, expected hlo.machine.Machine or a name")
    return wanted


def from_json(text: str, name: str) -> Machine:
    """The description in a file: an object with the fields of Machine; HloError for another."""
    try:
        machine = msgspec.json.decode(text, type=Machine)
    except msgspec.DecodeError as error:
        raise HloError(
            "machine", f"{name} is no description of a machine: {error}",
            help="hlo-opt --list-machines shows some; name, triple and features have to be there",
        ) from None  # fmt: skip
    for field, choices in CHOICES.items():
        if (value := getattr(machine, field)) not in choices:
            expected = ", ".join(map(str, choices[:-1])) + f" or {choices[-1]}"
            raise HloError("machine", f"{name}: {field} is {value}, expected {expected}")
    is_short = machine.architecture == "x86_64" and machine.vector_bytes < 64
    if machine.registers == 32 and is_short and "avx512vl" not in machine.features:
        raise HloError(
            "machine",
            f"{name}: registers is 32, expected 16 without vectors of 64 bytes and avx512vl",
        )
    if unknown := sorted(machine.features - _known(machine.architecture)):
        raise HloError(
            "machine",
            f"{name}: {', '.join(unknown)}: no description of {machine.architecture} has such a "
            "feature, expected LLVM's names",
            help="hlo-opt --list-machines shows which there are",
        )
    return machine


def with_features(machine: Machine, text: str) -> Machine:
    """The machine with features added and taken away, `+avx2,-fma` in LLVM's names; HloError for a
    name that no description has. Its vectors are those that the features make.
    """
    features = set(machine.features)
    known = machine.features | _known(machine.architecture)
    for item in filter(None, text.split(",")):
        sign, name = item[0], item[1:]
        if sign not in "+-" or name not in known:
            likely = near(item.lstrip("+-"), sorted(known))
            raise HloError(
                "machine",
                f"{item!r} is no feature of {machine.architecture}, expected + or - and a name",
                help=f"did you mean +{likely[0]}?"
                if likely
                else "+avx2,-fma adds one and drops one",
            )
        (features.add if sign == "+" else features.discard)(name)
    changed = described(machine.triple, frozenset(features))
    return replace(
        machine, name=f"{machine.name}{text}", features=changed.features,
        vector_bytes=changed.vector_bytes, registers=changed.registers,
    )  # fmt: skip


def _known(architecture: str) -> frozenset[str]:
    """The features of all descriptions of an architecture."""
    return frozenset(
        f for m in NAMED.values() if m.architecture == architecture for f in m.features
    )
