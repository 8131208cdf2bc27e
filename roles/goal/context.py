"""What every worker of a goal needs: the store's two sides, the contract, the repository."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.contract import ResearchContract
from contracts.store.connect import connect, store_url
from contracts.store.follow import Follower
from contracts.store.home import labmates_home
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.users import role_clients
from contracts.store.writer import Writer
from contracts.words import Role
from roles.goal.goals import contract_of, repository_of
from roles.workspace.git import Git


@dataclass(frozen=True, slots=True)
class GoalContext:
    """One goal as a process on this machine sees it.

    Attributes:
        contract: The approved (or proposed) contract, its hash checked.
        git: The user's repository, through the hardened wrapper.
        home: LABMATES_HOME.
        store: The store's address as it was asked for; empty means the embedded server.
        follower: The goal's events so far, by revision.
    """

    goal_id: str
    contract: ResearchContract
    reader: Reader
    writer: Writer
    follower: Follower
    git: Git
    home: Path
    store: str = ""

    @property
    def folder(self) -> Path:
        """The goal's folder on this machine: logs, prepared changes, trail."""
        return self.home / "goals" / self.goal_id


def with_credentials(context: GoalContext, roles: Sequence[Role]) -> GoalContext:
    """Give the context with the credentials of an agent's roles, where this machine keeps some.

    Each call is then made with the rights of its role, and everything is read with the first's.
    """
    address = context.writer.url
    clients = role_clients(context.store, address, roles, context.home)
    if not clients:
        return context
    context.writer.client.close()
    client = next(iter(clients.values()))
    reader = Reader(client, context.goal_id, url=address)
    writer = Writer(client, context.goal_id, url=address, by_role=clients)
    return replace(context, reader=reader, writer=writer, follower=Follower(reader))


def library_again(context: GoalContext) -> None:
    """Load the function library where a server has lost it; a role's credentials may not.

    Raises:
        StoreError: The store has another library, or does not answer.
    """
    with connect(store_url(context.store)) as client:
        ensure_library(client)


def open_context(goal_id: str, *, url: str | None = None) -> GoalContext:
    """Connect to the store and load a goal.

    Raises:
        UsageError: The store has no such goal.
        PreconditionError: The goal's repository is not known on this machine.
        StoreError: The store cannot be used.
    """
    asked = url or os.environ.get("LABMATES_STORE_URL", "")
    address = store_url(asked)
    client = connect(address)
    ensure_library(client)
    reader = Reader(client, goal_id, url=address)
    reader.require_goal()
    return GoalContext(
        goal_id=goal_id,
        contract=contract_of(reader),
        reader=reader,
        writer=Writer(client, goal_id, url=address),
        follower=Follower(reader),
        git=Git(repository_of(goal_id)),
        home=labmates_home(),
        store=asked,
    )
