"""Git, worktrees, fresh checkouts and scope."""
