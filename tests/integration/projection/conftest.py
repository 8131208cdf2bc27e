"""A played goal, and the commands of this room as a person runs them."""

import pytest
import redis

from tests.scenario import Scenario


@pytest.fixture
def played(redis_client: redis.Redis, goal_id: str) -> Scenario:
    """Give a goal that was played to its end."""
    return Scenario(redis_client, goal_id).open().play()
