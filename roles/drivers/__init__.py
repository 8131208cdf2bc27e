"""Drivers turn a brief into a change in a worktree."""
