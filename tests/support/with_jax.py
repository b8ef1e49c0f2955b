"""What tests need of JAX in any release that the package supports."""

from __future__ import annotations

from typing import Any

from hlo.errors import HloError
from hlo.tools.jax import jax_door


def available() -> bool:
    """Whether a supported release is installed."""
    try:
        jax_door.check_available()
    except HloError:
        return False
    return True


def enable_x64(on: bool) -> Any:  # noqa: FBT001  # as JAX has it
    """Within this, JAX's types have 64 bits, or not; an older release has it elsewhere."""
    try:
        return jax_door.jax().enable_x64(on)
    except (AttributeError, TypeError):
        return jax_door.public("jax.experimental").enable_x64(on)
