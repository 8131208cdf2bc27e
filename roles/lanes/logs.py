"""Logging of worker processes: key=value lines on standard error."""

import structlog


def log_to_stderr() -> None:
    """Configure structlog for this process; libraries only ever ask for a logger."""
    import sys  # noqa: PLC0415 - bound late, so that a redirected stream is used

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
