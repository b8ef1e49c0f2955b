"""python -m hlo: the commands without their scripts."""

from hlo.cli.start import both

if __name__ == "__main__":
    both()
