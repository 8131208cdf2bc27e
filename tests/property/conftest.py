"""Goals for scripted traces."""

import pytest
import redis

from tests.property import model as m
from tests.property.play import Make, Play


@pytest.fixture
def make(redis_client: redis.Redis, goal_id: str) -> Make:
    """Make a goal within limits, with its baseline and some hypotheses."""

    def made(count: int = 1, **limits: object) -> Play:
        values = {"low_water": 9, "max_attempts": 6, **limits}
        play = Play(redis_client, goal_id, m.Limits(**values))  # type: ignore[arg-type]
        play.ready(count)
        return play

    return made
