"""A load of light agents beside a test that does something to their store."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import wait_until


@dataclass(slots=True)
class Running:
    """A load that runs; `report` is there when it has ended."""

    folder: Path
    report: dict[str, Any] = field(default_factory=dict)

    def acknowledged(self) -> int:
        """Count the writes that were acknowledged so far."""
        return sum(path.read_text().count("\n") for path in self.folder.glob("*.log"))

    def goes_on(self, more: int = 50, *, timeout_s: float = 60) -> None:
        """Wait until so many more writes were acknowledged."""
        wanted = self.acknowledged() + more
        wait_until(
            lambda: self.acknowledged() >= wanted,
            description=f"{more} more writes; outages: {self.outages()[-300:]}",
            timeout_s=timeout_s,
        )

    def outages(self) -> str:
        """Give what the agents said of a store that did not serve them, line by line."""
        place = self.folder / "outages.txt"
        return place.read_text() if place.exists() else ""


@contextmanager
def under_load(
    url: str, folder: Path, *, seed: int, processes: int = 3, lease_ms: int = 3000
) -> Iterator[Running]:
    """Run light agents on a store for the block; behind it, nothing may be wrong with any goal."""
    arguments = {
        "--url": url,
        "--folder": str(folder),
        "--steps": "1000000",
        "--processes": str(processes),
        "--seed": str(seed),
        "--kill-every": "0",
        "--lease-ms": str(lease_ms),
    }
    flat = [part for pair in arguments.items() for part in pair]
    print(f"seed {seed}")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stress", *flat],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running(folder)
    try:
        running.goes_on(10)
        yield running
    finally:
        (folder / "stop").touch()
        out, errors = process.communicate(timeout=120)
        print(out, errors)
    running.report = json.loads(out)
    assert running.report["wrongs"] == []
    assert process.returncode == 0
