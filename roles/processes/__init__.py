"""Every child process: start, limits, capture, end of the whole tree."""
