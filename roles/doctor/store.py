"""The server: may it lose a record, does it hold our functions, does it know every goal?

What a server of our own is set to is changed with `fix`; for another one the command is named.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from contracts.errors import LabmatesError
from contracts.store.launch import OLDEST_VERSION
from contracts.store.library import ensure_library
from contracts.store.reader import Reader, goal_ids
from contracts.store.server import (
    ServerFacts,
    library_state,
    put_goal_list,
    server_facts,
    set_config,
)
from contracts.store.snapshot import known_goals_by_scan
from contracts.store.wire import redact_url
from roles.doctor.check import Check, found, missing, ok, some

MEMORY_SHARE = 0.7
_STORE = "store"


@dataclass(frozen=True, slots=True)
class Server:
    """The server under examination.

    Attributes:
        reader: Of no goal.
        own: It is the embedded one, whose settings are ours.
    """

    reader: Reader
    own: bool

    @property
    def url(self) -> str:
        """The server's address."""
        return self.reader.url


def store_checks(server: Server, *, fix: bool) -> Iterator[Check]:
    """Check the server, its functions and its list of goals."""
    facts = server_facts(server.reader.client, url=server.url)
    numbers = tuple(int(part) for part in facts.version.split(".")[:2] if part.isdigit())
    shown = f"{facts.name} {facts.version} at {redact_url(server.url)}"
    if numbers < OLDEST_VERSION and facts.name == "redis":
        yield missing(_STORE, "version", f"{shown}; functions need Redis 7.0 or newer, or Valkey")
        return
    yield ok(_STORE, "version", shown)
    yield _eviction(server, facts, fix=fix)
    yield _persistence(server, facts, fix=fix)
    yield _memory(facts)
    yield _library(server, fix=fix)
    yield _goal_list(server, fix=fix)


def _setting(server: Server, name: str, says: str, setting: tuple[str, str], *, fix: bool) -> Check:
    """Report a wrong setting; on a server of our own `fix` changes it."""
    option, value = setting
    if fix and server.own:
        set_config(server.reader.client, option, value, url=server.url)
        return found(_STORE, name, says, mended=True)
    if server.own:
        return found(_STORE, name, says, ["labmates", "doctor", "--fix"])
    command = ["redis-cli", "-u", redact_url(server.url), "config", "set", option, value]
    return found(_STORE, name, says, command)


def _eviction(server: Server, facts: ServerFacts, *, fix: bool) -> Check:
    name, wanted = "eviction", "noeviction"
    if facts.policy == wanted:
        return ok(_STORE, name, "no record is ever evicted")
    says = f"maxmemory-policy is {facts.policy}: records may vanish without an error"
    return _setting(server, name, says, ("maxmemory-policy", wanted), fix=fix)


def _persistence(server: Server, facts: ServerFacts, *, fix: bool) -> Check:
    name = "persistence"
    if not facts.append_only:
        says = "appendonly is off: a restart loses what was written since the last snapshot"
        return _setting(server, name, says, ("appendonly", "yes"), fix=fix)
    if facts.fsync == "no":
        says = "appendfsync is no: a power cut loses whatever the system has not written"
        return _setting(server, name, says, ("appendfsync", "always"), fix=fix)
    if facts.write_failed:
        says = "the last write of the append-only file failed: is the disk full?"
        return missing(_STORE, name, says, ["df", "-h"])
    return ok(_STORE, name, f"appendonly, appendfsync {facts.fsync or 'unknown'}")


def _memory(facts: ServerFacts) -> Check:
    name, megabytes = "memory", facts.memory / 1_000_000
    if not facts.memory_limit:
        return ok(_STORE, name, f"{megabytes:.0f} MB, without a limit")
    share = facts.memory / facts.memory_limit
    says = f"{megabytes:.0f} MB, {share:.0%} of maxmemory"
    if share <= MEMORY_SHARE:
        return ok(_STORE, name, says)
    return found(
        _STORE, name, f"{says}; a full store takes no writes", ["labmates", "goal", "list"]
    )


def _library(server: Server, *, fix: bool) -> Check:
    name, state = "functions", library_state(server.reader.client, url=server.url)
    if state == "ours":
        return ok(_STORE, name, "the library of this version")
    if state == "other":
        says = "the library of another version; end all lanes before you replace it"
        return found(_STORE, name, says, ["labmates", "store", "upgrade"])
    if not known_goals_by_scan(server.reader.client, url=server.url):
        return ok(_STORE, name, "not loaded yet; the first goal does it")
    if fix:
        ensure_library(server.reader.client)
    says = "the library is not loaded"
    return found(_STORE, name, says, ["labmates", "doctor", "--fix"], mended=fix)


def _goal_list(server: Server, *, fix: bool) -> Check:
    name = "list of goals"
    try:
        listed = set(goal_ids(server.reader.client, url=server.url))
    except LabmatesError as error:
        return missing(_STORE, name, error.message)
    there = set(known_goals_by_scan(server.reader.client, url=server.url))
    if listed == there:
        return ok(_STORE, name, f"{len(there)} goals" if len(there) != 1 else "1 goal")
    parts = []
    if there - listed:
        parts.append(f"it lacks {some(sorted(there - listed))}")
    if listed - there:
        parts.append(f"it names {some(sorted(listed - there))}, which has no records")
    if fix:
        put_goal_list(server.reader.client, add=there - listed, drop=listed - there, url=server.url)
    mend = ["labmates", "doctor", "--fix"]
    return found(_STORE, name, "; ".join(parts), mend, mended=fix)
