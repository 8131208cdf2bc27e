"""The store's flat answers as dictionaries, and the decision of `quota should-run` as a document.

Standard library only and cheap to import: the cold path uses it.
"""

Reply = dict[str, object]


def as_dict(flat: object) -> Reply:
    """Pair up a flat reply of names and values."""
    if not isinstance(flat, list):
        return {}
    return dict(zip(flat[::2], flat[1::2], strict=False))
