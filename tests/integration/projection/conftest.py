"""Played goals: one per module for tests that only read, one per test for those that do not."""

import uuid
from collections.abc import Iterator

import pytest
import redis

from contracts.store.connect import connect
from contracts.store.embedded import ServerStatus
from tests.scenario import Scenario


@pytest.fixture(scope="module")
def played(server: ServerStatus) -> Iterator[Scenario]:
    """Give a goal that was played to its end; only to be read."""
    with connect(server.url) as client:
        yield Scenario(client, f"p-{uuid.uuid4().hex[:12]}").open().play()


@pytest.fixture
def own(redis_client: redis.Redis, goal_id: str) -> Scenario:
    """Give a goal that was played to its end, for this test alone."""
    return Scenario(redis_client, goal_id).open().play()
