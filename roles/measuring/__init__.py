"""Rounds, pairs, scores and their statistics."""
