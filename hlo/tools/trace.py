"""trace: a profile in the form that ui.perfetto.dev and chrome://tracing open.

    Profile --trace_text--> JSON: one slice for each step, as long as all its calls took together

Steps are timed in sums, so slices stand one behind the other, the longest first. Source of the
form: "Trace Event Format", complete events (ph X), times in microseconds.
"""

from __future__ import annotations

import msgspec

from hlo.backend.profile import Profile


def trace_text(name: str, profile: Profile) -> str:
    """The events of one process with one thread, named after the module."""
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "steps"}},
    ]
    at = 0.0
    for row in profile.rows:
        detail = {
            "calls": row.calls, "line": row.line, "source": row.source, "op_name": row.op_name,
            "GB/s": row.gigabytes_per_second, "GFLOP/s": row.gigaflops,
        }  # fmt: skip
        events.append(
            {
                "ph": "X", "pid": 1, "tid": 1, "ts": at, "dur": row.us,
                "name": f"{row.name} {row.opcode}", "cat": row.kind, "args": detail,
            }
        )  # fmt: skip
        at += row.us
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns"}).decode()
