"""`python -m course gpus`: your machine on one page: each thread's question, asked of your GPUs.

Under torchrun every rank gives this same command.
"""

import argparse
from pathlib import Path

RANKS = 4  # on CPUs, where nobody says how many


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--cpu", action="store_true", help="make the same page by gloo, on CPUs")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for --cpu")
    how_many = f"ranks; if not given, one for each GPU, or {RANKS} on CPUs"
    parser.add_argument("--ranks", type=int, metavar="N", help=how_many)
    page = "page to write; the records lie beside it, as .json"
    parser.add_argument("--out", type=Path, default=Path("your-gpus.html"), help=page)


def main(options: argparse.Namespace) -> int:
    """Make the page; return 0 if every row ran that could."""
    from course.your_gpus import page

    ranks = options.ranks or (RANKS if options.cpu else None)
    return page.make(cpu=options.cpu, quick=options.quick, ranks=ranks, out=options.out)
