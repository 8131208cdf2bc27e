"""A goal on the session's server, and the environment in which the program finds it."""

from typing import TYPE_CHECKING

import pytest

from tests.integration.quota.goals import Goal, make_goal

if TYPE_CHECKING:
    import redis


@pytest.fixture
def goal(
    redis_client: "redis.Redis", server_url: str, goal_id: str, monkeypatch: pytest.MonkeyPatch
) -> Goal:
    """Give an approved goal with its baseline and four agents; programs find it by themselves."""
    monkeypatch.setenv("LABMATES_STORE_URL", server_url)
    monkeypatch.setenv("LABMATES_GOAL_ID", goal_id)
    return make_goal(redis_client, goal_id)
