"""The checkout's front door: `python cli.py opt ...` and `python cli.py run ...`."""

from hlo.cli.start import both

if __name__ == "__main__":
    both()
