"""The study from the command line: ``python -m mkmc_prob.experiments digits --output study``."""

import argparse
import shlex
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from ..datasets import FusionProblem, load_multiple_features, make_fusion_problem
from ..errors import MKMCError, MKMCWarning
from ..evaluation.missingness import remove_objects
from ..evaluation.protocols import PROTOCOLS
from ..fitting.selection import STRENGTHS
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
    default = (given.protocol, given.of) == ("pairs", "rows")
    removing = partial(remove_objects, protocol=given.protocol, of=given.of)
    fits = {name: options[name] for name in ("tol", "max_iter")}
    choosing = {name: options[name] for name in ("folds", "selection_tol")}
    chosen = partial(mkmc_chosen, strengths=tuple(given.strengths), **choosing, **fits)
    settings = ("ratios", "repetitions", "train_sizes", "C", "strength", "seed", "workers")
    study = run_study(
        kernels,
        classes,
        methods=[{name: chosen} if name == "mkmc_chosen" else name for name in given.methods],
        missingness=None if default else removing,
        folder=out / "cells",
        progress=True,
        **{name: options[name] for name in settings},
        **fits,
    ).assign_attrs(command=command)
    ratio = min(given.ratios, key=lambda share: abs(share - 0.5))
    for path in write_study(study, out, ratio=ratio, paper=given.data == "yeast"):
        print(path)
    print()
    print((out / "report.md").read_text(encoding="utf-8"))


def _data(given: argparse.Namespace) -> FusionProblem:
    """Return the kernels and classes that the arguments specify."""
    if given.data == "digits":
        loaded = load_multiple_features(given.per_class, seed=given.seed)
        return FusionProblem(loaded.kernels, loaded.classes)
    if given.data == "fusion":
        return make_fusion_problem(given.objects, given.kernels, seed=given.seed)
    return load_yeast(given.folder, repair=given.repair)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m mkmc_prob.experiments", description=ABOUT)
    data = parser.add_subparsers(dest="data", required=True, metavar="DATA")

    def subparser(name: str, about: str) -> argparse.ArgumentParser:
        return data.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}. {CONTINUES}",
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    digits = subparser("digits", "the bundled digits: six kernels, ten classes")
    digits.add_argument("--per-class", type=int, default=50, help="digits of each class, to 200")
    fusion = subparser("fusion", "simulated kernels of two classes, any size")
    fusion.add_argument("--objects", type=int, default=2318, help="how many")
    fusion.add_argument("--kernels", type=int, default=7, help="how many")
    yeast = subparser("yeast", "the paper's yeast proteins, from the original download")
    yeast.add_argument("folder", help="the folder of its files; see load_yeast")
    yeast.add_argument("--repair", choices=get_args(Method), help="for indefinite kernels")
    for each in (digits, fusion, yeast):
        add = each.add_argument
        none = argparse.SUPPRESS
        add("--output", required=True, default=none, help="the folder of the results")
        add("--repetitions", type=int, default=10, help="how many")
        add("--ratios", type=float, nargs="+", default=list(RATIOS), help="shares of rows removed")
        add("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="compared")
        add("--train-sizes", type=int, nargs="+", help="training objects; None: two sizes")
        add(
            "--C",
            type=float,
            nargs="+",
            default=[1.0],
            help="weight of errors; of several, chosen by CV",
        )
        add("--protocol", choices=SIMPLE, default="pairs", help="of remove_objects")
        add("--of", choices=["rows", "entries"], default="rows", help="what a ratio is a share of")
        add("--strength", type=float, default=PAPER_STRENGTH, help="lambda, of mkmc")
        add("--tol", type=float, default=TOL, help=f"of fits, in nats. {LOOSE}")
        add("--max-iter", type=int, default=10_000, help="of fits")
        add("--strengths", type=float, nargs="+", default=list(STRENGTHS), help="of mkmc_chosen")
        add("--folds", type=int, default=5, help="of mkmc_chosen")
        add("--selection-tol", type=float, default=TOL, help="of mkmc_chosen's selecting fits")
        add("--seed", type=int, default=0, help="of all random numbers")
        add("--workers", type=int, default=1, help="processes at a time")
    return parser


if __name__ == "__main__":
    warnings.simplefilter("default", MKMCWarning)
    main()
