"""Hashing: digests of 32 bytes, by which texts and arrays are named and told apart.

BLAKE2b (RFC 7693), from Python's own module where there is one: hashlib loads OpenSSL's library,
which takes a third as long as a small program's compilation.
"""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # a Python that was built without it
    from hashlib import blake2b

DIGEST_BYTES = 32


def hasher(data: bytes | memoryview = b"") -> blake2b:
    """What has `update`, `digest` and `hexdigest`, begun with some bytes."""
    return blake2b(data, digest_size=DIGEST_BYTES)
