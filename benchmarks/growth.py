"""`python -m benchmarks.growth [NAME...]`: seconds of each stage on large modules.

Every family of tests/support/growing/ at its largest size and at half of it; a ratio
beside 2 is linear. Each size runs in a process of its own, which ends after --limit seconds.
"""

import argparse
import subprocess
import sys
import time

from benchmarks.stages import STAGES, compile_stages
from hlo import driver
from hlo.tools.bench import duration
from tests.support.growing_modules import FAMILIES

COLUMNS = ("parse", "print", *STAGES)


def stage_seconds(name: str, size: int) -> dict[str, float]:
    """Seconds of each stage on one module."""
    text = FAMILIES[name].text(size)
    start = time.perf_counter()
    module = driver.parse(text)
    parsed = time.perf_counter()
    driver.to_text(module)
    printed = time.perf_counter()
    return {
        "parse": parsed - start,
        "print": printed - parsed,
        **compile_stages(module, None),
    }


def measured(name: str, size: int, limit: float) -> dict[str, float] | None:
    """The same in a process of its own; None where it does not end in time."""
    command = [sys.executable, "-m", "benchmarks.growth", "--one", name, str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    return dict(zip(COLUMNS, map(float, done.stdout.split()), strict=True))


def row(name: str, size: int, limit: float) -> str:
    """One line: seconds at the size, how many times those of half of it, and each stage's."""
    half, whole = measured(name, size // 2, limit), measured(name, size, limit)
    head = f"{name:<26}{size:>8}"
    if half is None or whole is None:
        return f"{head}   no end in {limit:.0f} s, or an error"
    total = sum(whole.values())
    stages = "".join(f"{duration(whole[s]):>9}" for s in COLUMNS)
    return f"{head}{duration(total):>9}{total / sum(half.values()):>7.2f}{stages}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("names", nargs="*", help="families; all of them by default")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one module")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SIZE"), help="one module's seconds")
    arguments = parser.parse_args()
    if arguments.one:
        name, size = arguments.one
        print(*stage_seconds(name, int(size)).values())
        return
    head = "".join(f"{s:>9}" for s in COLUMNS)
    print(f"{'family':<26}{'size':>8}{'seconds':>9}{'ratio':>7}{head}")
    for name in arguments.names or FAMILIES:
        print(row(name, FAMILIES[name].large, arguments.limit), flush=True)


if __name__ == "__main__":
    main()
