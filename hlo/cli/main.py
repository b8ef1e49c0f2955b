"""Entry points of hlo-opt and hlo-run, and the outermost handler of all errors.

Exit codes: 0 fine; 1 the program, its input or the comparison is at fault; 2 usage; 3 a bug of
ours (with a reproducer); 130 interrupted. Subcommands are loaded when they are called, so that
`--version` and `--help` cost neither NumPy nor LLVM.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from hlo import __version__
from hlo.cli.bug_report import report_bug
from hlo.cli.colours import takes_colour
from hlo.cli.progress import progress_bars
from hlo.cli.streams import discard, settle_streams
from hlo.cli.terminal import say, usage_text
from hlo.errors import HloError
from hlo.process.garbage import seldom_collected
from hlo.process.idle_threads import let_sleep

OPT_COMMANDS = {
    "bisect": "The pass, rewrite or kernel that breaks a program.",
    "check": "Parse and verify files; quiet when clean.",
    "completion": "A script that makes bash, zsh or fish complete the commands.",
    "convert": "Write a module in another form: pb, pbtxt, json, StableHLO.",
    "cost": "Operations, bytes and least time, by instruction or source line.",
    "diff": "What differs between two modules, names aside.",
    "eq": "Compare two modules up to names.",
    "explain": "The manual of an error code, opcode or pass.",
    "extract": "Some instructions as a module that runs by itself.",
    "fmt": "Reprint files in the standard form.",
    "graph": "A picture: tree, dot, SVG, or a page with buffers, kernels, times.",
    "list": "The modules of an archive, a log or a folder of dumps.",
    "lsp": "Serve an editor: errors, hover, definitions, completion.",
    "query": "Instructions for which a condition holds.",
    "reduce": "Shrink a module while a property holds.",
    "slice": "What depends on an instruction, or what it depends on.",
    "stats": "Opcodes, types and shapes, counted.",
    "transform": "Run passes and print (the default).",
}
RUN_COMMANDS = {
    "bench": "Time programs, beside XLA if asked.",
    "compile": "Object files, libraries and headers that need no Python.",
    "compare": "Two modules, or two ways to run one: equal, different, undecided.",
    "memory": "Peak memory, and every buffer with what made it.",
    "nans": "The first instruction that makes a NaN or an infinity.",
    "profile": "Where a run's time goes, step by step.",
    "repl": "A prompt: load modules, call them with NumPy's expressions.",
    "run": "Compile and run once (the default).",
}


def _command(name: str) -> click.Command | None:
    """The command of a name, which is in one table only; the others are not imported."""
    command = _opt_command(name) or _comparing_command(name) or _run_command(name)
    return None if command is None else takes_colour(command)


def _opt_command(name: str) -> click.Command | None:
    match name:
        case "check":
            from hlo.cli.opt_check import command
        case "completion":
            from hlo.cli.completion import command
        case "convert":
            from hlo.cli.opt_convert import command
        case "explain":
            from hlo.cli.opt_explain import command
        case "fmt":
            from hlo.cli.opt_fmt import command
        case "list":
            from hlo.cli.opt_list import command
        case "lsp":
            from hlo.cli.opt_lsp import command
        case "transform":
            from hlo.cli.opt import command
        case _:
            return None
    return command


def _comparing_command(name: str) -> click.Command | None:
    match name:
        case "bisect":
            from hlo.cli.opt_bisect import command
        case "cost":
            from hlo.cli.opt_cost import command
        case "diff":
            from hlo.cli.opt_diff import command
        case "eq":
            from hlo.cli.opt_eq import command
        case "extract":
            from hlo.cli.opt_extract import command
        case "graph":
            from hlo.cli.opt_graph import command
        case "query":
            from hlo.cli.opt_query import command
        case "reduce":
            from hlo.cli.opt_reduce import command
        case "slice":
            from hlo.cli.opt_slice import command
        case "stats":
            from hlo.cli.opt_stats import command
        case _:
            return None
    return command


def _run_command(name: str) -> click.Command | None:
    match name:
        case "bench":
            from hlo.cli.run_bench import command
        case "compile":
            from hlo.cli.run_compile import command
        case "compare":
            from hlo.cli.run_compare import command
        case "memory":
            from hlo.cli.run_memory import command
        case "nans":
            from hlo.cli.run_nans import command
        case "profile":
            from hlo.cli.run_profile import command
        case "repl":
            from hlo.cli.run_repl import command
        case "run":
            from hlo.cli.run import command
        case _:
            return None
    return command


def _home_of(name: str) -> str:
    """The command that has a subcommand."""
    return "hlo-opt" if name in OPT_COMMANDS else "hlo-run"


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called.

    Arguments that do not begin with a subcommand's name belong to the default one.
    """

    def __init__(self, name: str, rows: dict[str, str], default: str, help: str) -> None:
        super().__init__(name, help=help, context_settings={"help_option_names": ["-h", "--help"]})
        self._rows = rows
        self._default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self._rows)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        del ctx
        return _command(name) if name in self._rows else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"-h", "--help", "--version"}
        if args and args[0] not in self._rows:
            self._check_spelling(ctx, args[0])
        if not args or (args[0] not in self._rows and args[0] not in own):
            args = [self._default, *args] if args else ["--help"]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Subcommands, and what the default command takes in their place."""
        found = [
            CompletionItem(name, help=text)
            for name, text in self._rows.items()
            if name.startswith(incomplete)
        ]
        default = _command(self._default)
        if default is not None and (incomplete.startswith("-") or not found):
            inside = click.Context(default, parent=ctx, info_name=self._default)
            found += default.shell_complete(inside, incomplete)
        return found or [CompletionItem(incomplete, type="file")]

    def _check_spelling(self, ctx: click.Context, word: str) -> None:
        """A usage error for a word that is near to a subcommand and names no file."""
        if not re.fullmatch(r"[a-z]+", word) or Path(word).exists():
            return
        import difflib  # for faults alone

        near = difflib.get_close_matches(word, [*OPT_COMMANDS, *RUN_COMMANDS], 1, cutoff=0.7)
        if near:
            group = self.name if near[0] in self._rows else _home_of(near[0])
            raise click.UsageError(
                f"there is no subcommand or file {word}; did you mean `{group} {near[0]}`?", ctx
            )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of subcommands, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._rows.items()))


OPT_HELP = """Module in, module (or a view of it) out.

\b
  hlo-opt model.hlo                                 parse, verify, print
  hlo-opt model.hlo --passes=simplify -o small.hlo  rewrite
  hlo-opt model.hlo --passes=default --emit=asm     see the machine code
  hlo-opt check *.hlo                               all errors of all files

`hlo-opt transform --help` lists the flags of the default command.
"""

RUN_HELP = """Compile, run, compare, measure.

\b
  hlo-run model.hlo                              made-up inputs, summary of the outputs
  hlo-run model.hlo --inputs=x.npz --outputs=y.npz
  hlo-run model.hlo --compare=interpreter --time
  hlo-run bench model.hlo --against=jax
  hlo-run compile model.hlo -o model.o --header=model.h

`hlo-run run --help` lists the flags of the default command.
"""


def _group(name: str, rows: dict[str, str], default: str, help: str) -> click.Command:
    group = LazyGroup(name, rows, default, help)
    return click.version_option(__version__, prog_name=name)(group)


def opt(arguments: Sequence[str] | None = None) -> None:
    """The command hlo-opt."""
    _guarded(_group("hlo-opt", OPT_COMMANDS, "transform", OPT_HELP), arguments)


def run(arguments: Sequence[str] | None = None) -> None:
    """The command hlo-run."""
    _guarded(_group("hlo-run", RUN_COMMANDS, "run", RUN_HELP), arguments)


def both(arguments: Sequence[str] | None = None) -> None:
    """`python -m hlo opt ..` and `python -m hlo run ..`; a subcommand's own name does as well."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    commands = {"opt": opt, "run": run}
    if given and given[0] in commands:
        commands[given[0]](given[1:])
    elif given and given[0] in RUN_COMMANDS:
        run(given)
    elif given and given[0] in OPT_COMMANDS:
        opt(given)
    else:
        say("usage: python -m hlo opt|run ARGUMENTS..., as hlo-opt and hlo-run")
        sys.exit(2 if given and given[0] not in ("-h", "--help") else 0)


def _guarded(command: click.Command, arguments: Sequence[str] | None) -> None:
    """Run the command; turn whatever it raises into a message and an exit code."""
    settle_streams()
    seldom_collected()
    let_sleep()
    given = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        sys.exit(exit_code(command, given))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning of the library as the commands' other messages are written."""
    say(f"warning: {message}")


def exit_code(command: click.Command, given: list[str]) -> int:
    """The exit code of one call; messages go to stderr."""
    try:
        with progress_bars():
            outcome = command.main(args=given, prog_name=command.name, standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.UsageError as error:
        say(usage_text(error))
        return 2
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    except HloError as error:
        say(str(error))
        return 1
    except BrokenPipeError:
        discard(sys.stdout)
        return 1
    except OSError as error:
        discard(sys.stdout)
        say(f"error[file]: {error.filename or 'standard output'}: {error.strerror or error}")
        return 1
    except MemoryError:
        say("error[memory]: the program needs more memory than there is")
        return 1
    except Exception as error:  # the one place that catches all: a bug of ours
        say(report_bug(command.name or "hlo", given, error))
        return 3
