"""Lanes as processes: the worker loop, its lease, its lives, starting and ending them."""
