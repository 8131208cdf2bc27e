"""Gates through the program: who opens, who decides, what a decision is bound to."""

import json
import subprocess
from pathlib import Path

import pytest

from contracts.store.embedded import ensure_server, server_status
from contracts.store.reader import Reader
from contracts.words import Stream
from projection.verify import verify
from tests.faults.test_store_under_load import kill_server
from tests.integration.quota.goals import Goal
from tests.unit.cli.program import SCRIPT, run
