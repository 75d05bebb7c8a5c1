"""The study from the command line: ``python -m mkmc_prob.experiments digits --output study``."""

import argparse
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from ..datasets import FusionProblem, load_multiple_features, make_fusion_problem
from ..errors import MKMCError, MKMCWarning
from ..evaluation.missingness import remove_objects
from ..evaluation.protocols import PROTOCOLS
from ..fitting.strengths import STRENGTHS
from ..stacks.definite import Method
from .methods import METHODS, PAPER_STRENGTH, mkmc_chosen
from .report import write_study
from .study import RATIOS, run_study
from .yeast import load_yeast

#: Protocols that need only a ratio.
SIMPLE = [name for name, protocol in PROTOCOLS.items() if not protocol.needs]
#: The default tolerance of fits, and what the help says of it.
TOL = 0.1
LOOSE = "run_study's is 0.001, which takes longer; scores of single cells can differ"
ABOUT = """
Compare methods of completion as section 5 of the paper does: on the bundled digits, on simulated
kernels, or on the paper's yeast proteins. For kernels of your own call
mkmc_prob.experiments.run_study and write_study from Python.
"""
CONTINUES = "The same command again continues where it ended: finished cells are in OUTPUT/cells."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study that the arguments specify, and write its results.

    An error is one line on stderr, and the exit code 2.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    given = _parser().parse_args(arguments)
    try:
        _run(given, f"python -m mkmc_prob.experiments {shlex.join(arguments)}")
    except (MKMCError, OSError) as error:
        print("error:", *str(error).split(), file=sys.stderr)
        raise SystemExit(2) from error


def _run(given: argparse.Namespace, command: str) -> None:
    kernels, classes = _data(given)
    out, options = Path(given.output), vars(given)
    names = ("ratios", "repetitions", "C", "strength", "tol", "max_iter", "seed", "workers")
    fits = {name: options[name] for name in ("folds", "selection_tol", "tol", "max_iter")}
    chosen = partial(mkmc_chosen, strengths=tuple(given.strengths), **fits)
    removing = partial(remove_objects, protocol=given.protocol, of=given.of)
    study = run_study(
        kernels,
        classes,
        methods=[{name: chosen} if name == "mkmc_chosen" else name for name in given.methods],
        missingness=None if (given.protocol, given.of) == ("pairs", "rows") else removing,
        train_sizes=given.train_sizes or None,
        folder=out / "cells",
        progress=True,
        **{name: options[name] for name in names},
    ).assign_attrs(command=command)
    ratio = min(given.ratios, key=lambda share: abs(share - 0.5))
    for path in write_study(study, out, ratio=ratio, paper=given.data == "yeast"):
        print(path)
    print()
    print((out / "report.md").read_text(encoding="utf-8"))


def _data(given: argparse.Namespace) -> FusionProblem:
    """Return the kernels and classes that the arguments specify."""
    if given.data == "digits":
        return FusionProblem(*load_multiple_features(given.per_class, seed=given.seed)[:2])
    if given.data == "fusion":
        return make_fusion_problem(given.objects, given.kernels, seed=given.seed)
    return load_yeast(given.folder, repair=given.repair)


#: The options of all subcommands: name, type or choices, default (a list takes several), help.
OPTIONS: list[tuple[str, Any, Any, str]] = [
    ("--repetitions", int, 10, "how many"),
    ("--ratios", float, list(RATIOS), "shares of rows removed"),
    ("--methods", METHODS, list(METHODS), "compared"),
    ("--train-sizes", int, [], "training objects; none: two sizes"),
    ("--C", float, [1.0], "weight of errors; of several, chosen by CV"),
    ("--protocol", SIMPLE, "pairs", "of remove_objects"),
    ("--of", ("rows", "entries"), "rows", "what a ratio is a share of"),
    ("--strength", float, PAPER_STRENGTH, "lambda, of mkmc"),
    ("--tol", float, TOL, f"of fits, in nats. {LOOSE}"),
    ("--max-iter", int, 10_000, "of fits"),
    ("--strengths", float, list(STRENGTHS), "of mkmc_chosen"),
    ("--folds", int, 5, "of mkmc_chosen"),
    ("--selection-tol", float, TOL, "of mkmc_chosen's selecting fits"),
    ("--seed", int, 0, "of all random numbers"),
    ("--workers", int, 1, "processes at a time"),
]


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m mkmc_prob.experiments", description=ABOUT)
    data = parser.add_subparsers(dest="data", required=True, metavar="DATA")

    def adder(name: str, about: str) -> Callable[..., Any]:
        description = f"{about[0].upper()}{about[1:]}. {CONTINUES}"
        form, none = argparse.ArgumentDefaultsHelpFormatter, argparse.SUPPRESS
        add = data.add_parser(
            name, help=about, description=description, formatter_class=form
        ).add_argument
        add("--output", required=True, default=none, help="the folder of the results")
        for option, kind, default, text in OPTIONS:
            look: dict[str, Any] = {"type": kind} if callable(kind) else {"choices": kind}
            look["nargs"] = "+" if isinstance(default, list) else None
            add(option, default=default, help=text, **look)
        return add

    add = adder("digits", "the bundled digits: six kernels, ten classes")
    add("--per-class", type=int, default=50, help="digits of each class, to 200")
    add = adder("fusion", "simulated kernels of two classes, any size")
    add("--objects", type=int, default=2318, help="how many")
    add("--kernels", type=int, default=7, help="how many")
    add = adder("yeast", "the paper's yeast proteins, from the original download")
    add("folder", help="the folder of its files; see load_yeast")
    add("--repair", choices=get_args(Method), help="for indefinite kernels")
    return parser


if __name__ == "__main__":
    warnings.simplefilter("default", MKMCWarning)
    main()
