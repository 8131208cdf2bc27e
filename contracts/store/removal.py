"""The end of a goal in its store: all of its keys in one transaction, then its place in the list."""

from collections.abc import Mapping

import redis
from redis.exceptions import WatchError

from contracts.errors import RefusedError
from contracts.store import keys
from contracts.store.connect import translate, with_retries
from contracts.store.reader import Reader
from contracts.store.rebuild import key_types
from contracts.store.snapshot import SNAPSHOT_TRIES


def drop_goal(reader: Reader, heads: Mapping[str, str] | None) -> int:
    """Delete every key of a goal; gives how many there were.

    Args:
        reader: Of the goal.
        heads: The heads of the streams as they were archived; None drops whatever is there.

    Raises:
        RefusedError: The goal has moved on since; nothing was deleted.
        StoreError: The store cannot be written.
    """
    goal_id = reader.goal_id
    for _ in range(SNAPSHOT_TRIES):
        try:
            dropped = _drop(reader, heads)
        except WatchError as error:
            if heads is not None:
                raise _moved_on(goal_id) from error
            continue
        except redis.RedisError as error:
            raise translate(error, url=reader.url) from error
        with_retries(lambda: reader.client.srem(keys.GOALS, goal_id), url=reader.url)
        return dropped
    raise _moved_on(goal_id)


def _drop(reader: Reader, heads: Mapping[str, str] | None) -> int:
    goal_id = reader.goal_id
    with reader.client.pipeline() as batch:
        batch.watch(keys.heads(goal_id), keys.goal(goal_id))  # type: ignore[no-untyped-call]
        if heads is not None and reader.heads() != dict(heads):
            raise _moved_on(goal_id)
        names = list(key_types(reader))
        batch.multi()
        for name in names:
            batch.delete(f"{keys.prefix(goal_id)}:{name}")
        batch.execute()
    return len(names)


def _moved_on(goal_id: str) -> RefusedError:
    return RefusedError(
        f"the goal {goal_id} has moved on since it was archived",
        reason="archive_old",
        missing="an archive of the goal as it is now",
        mend=[["labmates", "goal", "archive", f"{goal_id}-new.jsonl.gz", "--goal-id", goal_id]],
        tail="Nothing was removed.",
    )
