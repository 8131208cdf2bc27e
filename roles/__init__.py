"""Processes that do work: workers, drivers, worktrees, evaluation, the command line."""
