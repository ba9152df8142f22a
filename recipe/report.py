"""Tables and figures of runs and evaluations: ``python -m recipe.report SUBCOMMAND --help``."""

import argparse
import sys
from collections.abc import Sequence

from recipe.evaluation.folder import FolderError
from recipe.records.arms import ReportError
from recipe.records.versions import RecordsError
from recipe.reports import (
    bars,
    choose,
    compare,
    general,
    hacks,
    online,
    page,
    perplexity,
    serve,
    skills,
    speed,
    summary,
)
from recipe.runtime.console import program
from recipe.runtime.visible import visible

SUBCOMMANDS = {
    "compare": compare,
    "skills": skills,
    "bars": bars,
    "speed": speed,
    "online": online,
    "choose": choose,
    "hacks": hacks,
    "summary": summary,
    "page": page,
    "serve": serve,
    "perplexity": perplexity,
    "general": general,
}
REFUSED = 2


def command_line() -> argparse.ArgumentParser:
    """Parser of all subcommands; ``options.run(options)`` runs the chosen one."""
    parser = argparse.ArgumentParser(prog=program("report"), description=__doc__.partition(":")[0] + ".")
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    for name, module in SUBCOMMANDS.items():
        text = module.__doc__ or ""
        subcommand = subcommands.add_parser(
            name,
            help=text.partition("\n")[0].replace("%", "%%"),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_options(subcommand)
        subcommand.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = command_line().parse_args(arguments)
    try:
        options.run(options)
    except (FolderError, OSError, RecordsError, ReportError) as error:
        print(visible(f"recipe.report {options.subcommand}: {error}"), file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
