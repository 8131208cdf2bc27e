"""How long a step may take: what the contract allows its commands, and time for git and the disk.

A step that takes longer hangs, however alive its process is. Its claim is then no longer renewed,
so that the item comes back to others with the end of the lease, and what it started is ended.
"""

from contracts.contract import ResearchContract
from contracts.words import Role

MARGIN_S = 300.0
"""Seconds for everything in a step that the contract does not limit."""


def step_limit_s(contract: ResearchContract, role: Role) -> float:
    """Give the seconds after which a step of a role hangs."""
    environment, evaluation = contract.environment, contract.evaluation
    if role is Role.EXECUTOR:
        return contract.policy.attempt_timeout_s + MARGIN_S
    if role is Role.EVALUATOR:
        # both splits in pairs at most (the baseline), one guard, and a setup for each commit
        return (4 * evaluation.pairs + 3) * environment.timeout_s + MARGIN_S
    return MARGIN_S
