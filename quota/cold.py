"""The cold path of `quota should-run` and `quota claim`: one call on one socket, few imports.

Theory of operation. An agent asks before every step, so the answer must cost little more than
starting Python: arguments are read by hand, the store is asked through `contracts.store.wire`, and
JSON is written here. Whatever is not plain (help, faults, no server, no library) is handed to the
warm path, `quota.warm`, with the same operation id, so that nothing is ever claimed twice.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from contracts.errors import StoreError, UsageError
from contracts.store import keys, wire
from contracts.store.decision import as_dict
from quota.document import build, exit_code
from quota.extra import extra_for
from quota.request import arguments, declared_keys, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quota.request import Request

_TIMEOUT_S = 5.0
FUNCTIONS = {"should-run": ("FCALL_RO", "lm_should_run_v1"), "claim": ("FCALL", "lm_claim_v1")}


def run(command: str, argv: Sequence[str]) -> int | None:
    """Answer one question; None when click must look at the command line first."""
    request = parse(command, argv)
    if request is None:
        return None
    try:
        found = _ask(request)
    except (StoreError, UsageError):
        found = None
    if found is None:
        from quota import warm  # noqa: PLC0415 - redis and its errors cost 120 ms

        document = warm.answer(request)
    else:
        document = found
    show(document, as_json=request.as_json)
    return exit_code(document)


def show(document: dict[str, object], *, as_json: bool) -> None:
    """Print a decision on stdout, as one JSON document or for a person."""
    if as_json:
        sys.stdout.write(to_json(document) + "\n")
        return
    from quota.text import render  # noqa: PLC0415 - agents ask for JSON

    coloured = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    sys.stdout.write(render(document, colour=coloured))


def _ask(request: Request) -> dict[str, object] | None:
    """Ask the store once; None when the warm path must take over."""
    url = request.store or _embedded_url()
    if not url or url.startswith("rediss:"):
        return None
    with wire.connect(url, _TIMEOUT_S) as client:
        goal_id = request.goal_id
        if not goal_id:
            goals = client.call("SMEMBERS", keys.GOALS)
            if not isinstance(goals, list) or len(goals) != 1:
                return None
            goal_id = str(goals[0])
        verb, name = FUNCTIONS[request.command]
        declared = declared_keys(request, goal_id)
        answer = client.call(verb, name, str(len(declared)), *declared, *arguments(request))
        if not isinstance(answer, list) or answer[:1] == ["refused"]:
            return None
        reply = as_dict(answer)
        return build(
            reply,
            goal_id=goal_id,
            agent_id=request.agent_id,
            extra=extra_for(client.call, goal_id, reply),
            named_goal=request.named_goal,
            claimed=request.command == "claim",
        )


def _embedded_url() -> str | None:
    """Name the embedded server's socket if there is one; whether it answers, the call shows."""
    from contracts.store.home import home_text, socket_text, socket_url  # noqa: PLC0415 - see above

    path = socket_text(home_text())
    return socket_url(path) if os.path.exists(path) else None  # noqa: PTH110 - pathlib costs 13 ms


def to_json(value: object) -> str:
    """Write plain values as JSON; the json package costs 8 ms, its C part nothing.

    Raises:
        TypeError: A value is of another type, or no finite number.
    """
    from _json import encode_basestring_ascii as quoted  # noqa: PLC0415 - built in

    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return str(quoted(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value - value == 0:
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)}: {to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(to_json(each) for each in value) + "]"
    msg = f"no JSON for {type(value).__name__}"
    raise TypeError(msg)
