"""A goal whose agents are moved one by one, on the model and the real store at once."""

from collections.abc import Callable

from tests.property.both import Both
from tests.property.work import Choice, step

GOOD = Choice()
BAD = Choice(verdict="regression")
NO_SCORE = Choice(fails=True)


class Play(Both):
    """A goal whose agents are moved one by one."""

    def take(self, agent: str, action: str, todo: str = "") -> None:
        """Let an agent claim, and say what it must be given."""
        assert self.claim(agent), f"{agent} is given nothing, not {action}"
        item = self.model.items[self.hands[agent].model.todo]
        assert item.claim is not None
        assert (item.claim.action, todo or item.todo) == (action, item.todo)
        self.compare()

    def work(self, agent: str, choice: Choice = GOOD, *, done: bool = True) -> None:
        """Let an agent take the next step under its claim, which both sides take or refuse."""
        assert step(self, self.hands[agent], choice) == done
        self.compare()

    def goes(self, agent: str, action: str, *choices: Choice) -> str:
        """Let an agent claim and take steps; gives the todo."""
        self.take(agent, action)
        todo = self.hands[agent].model.todo
        for choice in choices or (GOOD,):
            self.work(agent, choice)
        return todo

    def reason(self, agent: str) -> str:
        """Say why there is nothing for an agent, asked of the store."""
        return str(self.reader.should_run(agent)["reason"])

    def state(self, todo: str) -> str:
        """Give an item's state in the store."""
        return self.reader.item(todo)["state"]

    def ready(self, count: int) -> None:
        """Measure the baseline and propose."""
        self.goes("evaluator-1", "measure_baseline")
        for _ in range(count):
            self.goes("proposer-1", "propose")

    def evidence(self, choice: Choice = GOOD, agent: str = "executor-1") -> str:
        """Bring an attempt to its evidence."""
        return self.goes(agent, "select", choice, choice)

    def supported(self, agent: str = "executor-1") -> str:
        """Bring an item to `supported`."""
        self.evidence(agent=agent)
        return self.goes("evaluator-1", "evaluate", GOOD, GOOD)

    def at_gate(self) -> str:
        """Bring an item to the promotion gate."""
        self.supported()
        return self.goes("evaluator-1", "measure_holdout", GOOD, GOOD)

    def lapse(self, todo: str) -> None:
        """Let a lease end, and somebody ask."""
        self.expire(todo)
        self.claim("curator-1")
        self.compare()


Make = Callable[..., Play]
