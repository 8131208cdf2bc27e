"""From a repository to a goal: the contract file, approval, sources, what a process of a goal needs."""
