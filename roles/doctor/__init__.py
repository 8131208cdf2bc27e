"""Checks of `labmates doctor`: the store, the records of its goals, what this machine keeps."""
