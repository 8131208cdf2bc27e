"""What `doctor --fix` does with credentials that may not mend: one line says so, nothing changes."""

from pathlib import Path

import pytest

from contracts.store import keys
from contracts.store.credentials import passwords_of, url_of
from contracts.store.users import make_users
from tests.integration.roles.test_doctor import (  # noqa: F401 - fixtures
    Doctor,
    client,
    doctor,
    outcomes,
    own,
)
from tests.integration.store.dumps import dump
from tests.scenario import Scenario


@pytest.mark.parametrize("who", ["reader", "executor", "operator"])
def test_users_of_the_store_that_may_not_mend_are_told_in_one_line_and_change_nothing(
    own: Scenario,  # noqa: F811 - the fixture
    server_of_home: str,
    doctor: Doctor,  # noqa: F811 - the fixture
    tmp_path: Path,
    who: str,
) -> None:
    passwords = passwords_of(tmp_path / "credentials")
    make_users(own.client, passwords)
    url = url_of(server_of_home, who, passwords[who])
    own.client.hset(keys.item("lab-1", "todo_0003"), "state", "promoted")
    before = dump(own.client, "lab-1")

    code, checks = doctor("--store", url)
    assert (code, outcomes(checks, "missing")) == (1, set())
    assert "todo_0003 state is promoted" in checks["derived state"]["says"]

    code, checks = doctor("--fix", "--store", url)
    assert (code, outcomes(checks, "missing")) == (5, {"answer"})
    assert checks["answer"]["says"].endswith("refuses these credentials")
    assert passwords[who] not in str(checks)
    assert dump(own.client, "lab-1") == before

    assert doctor("--fix", "--store", server_of_home)[0] == 0
