"""Canonical JSON and the digest chain of a stream.

The chain is SHA-1 because that is the hash the store's Lua has; it guards against accidents and
edits, not against a writer who recomputes it: replay, the roster and a head kept elsewhere do that.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any


def canonical(value: Mapping[str, Any]) -> str:
    """Write JSON with sorted keys, no spaces and no NaN.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_hex(text: str | bytes) -> str:
    """Hash text (as UTF-8) or bytes with SHA-256."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()


def text_digest(text: str) -> str:
    """Digest a hypothesis' text, so that case, blanks and Unicode forms make no difference."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return sha256_hex(" ".join(unicodedata.normalize("NFKC", plain).split()))


def chain_digest(previous: str, fields: Iterable[tuple[str, str]]) -> str:
    """Hash one entry onto the digest before it.

    Args:
        previous: The digest of the entry before, or `{goal_id}:{stream}` for the first.
        fields: Name and value of every field of the entry but `digest`, in stored order.
    """
    parts = [previous]
    for name, value in fields:
        parts.append(f"{len(name.encode())}:{name}={len(value.encode())}:{value}")
    return hashlib.sha1("|".join(parts).encode(), usedforsecurity=False).hexdigest()
