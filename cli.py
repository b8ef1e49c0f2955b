"""The checkout's front door: `python cli.py opt ...` and `python cli.py run ...`."""

import sys

from hlo.cli.main import opt, run

if __name__ == "__main__":
    commands = {"opt": opt, "run": run}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit("usage: python cli.py opt|run ARGUMENTS...")
    commands[sys.argv[1]](sys.argv[2:])
