"""trace: a run in the form that ui.perfetto.dev and chrome://tracing open.

    Slice ..., Profile --trace_text--> JSON: a track for each thread, a slice for each step's part

What the profile knows of a step stands beside its slices. Source of the form: "Trace Event Format",
complete events (ph X), times in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hlo.backend.profiling.profile import Profile, ProfileRow
from hlo.backend.profiling.timeline import Slice


def trace_text(name: str, slices: Sequence[Slice], profile: Profile) -> str:
    """The events of one process, named after the module."""
    rows = {(row.name, row.opcode): row for row in profile.rows}
    events: list[dict[str, object]] = [_named("process_name", 0, name)]
    for thread in sorted({s.thread for s in slices}):
        words = f"worker {thread}" if thread else "caller"
        events.append(_named("thread_name", thread, words))
    for s in slices:
        events.append(
            {
                "ph": "X", "pid": 1, "tid": s.thread, "ts": s.began_us, "dur": s.us,
                "name": f"{s.name} {s.opcode}", "cat": s.kind,
                "args": _detail(rows.get((s.name, s.opcode))),
            }
        )  # fmt: skip
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns"}).decode()


def _named(what: str, thread: int, name: str) -> dict[str, object]:
    return {"ph": "M", "pid": 1, "tid": thread, "name": what, "args": {"name": name}}


def _detail(row: ProfileRow | None) -> dict[str, object]:
    if row is None:
        return {}
    return {
        "calls": row.calls, "line": row.line, "source": row.source, "op_name": row.op_name,
        "GB/s": row.gigabytes_per_second, "GFLOP/s": row.gigaflops,
    }  # fmt: skip
