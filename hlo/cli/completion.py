"""hlo-opt completion SHELL: the script that makes a shell complete both commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hlo.cli.terminal import tell
from hlo.errors import HloError

SHELLS = ("bash", "zsh", "fish")
COMMANDS = ("hlo-opt", "hlo-run")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print a script for your shell's start: eval "$(hlo-opt completion bash)"."""
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    for name in COMMANDS:
        variable = f"_{name.replace('-', '_')}_COMPLETE".upper()
        try:
            script = made(click.Group(name), {}, name, variable).source()
        except RuntimeError as error:  # click's, of a bash that is too old
            raise HloError("unsupported", f"completion: {error}") from None
        tell(script, nl=False)
    return 0
