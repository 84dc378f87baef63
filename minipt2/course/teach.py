"""``minipt2 course``: the instructor's command line.

    minipt2 course prove [ID ...]     stub, reference and mutants of every exercise
"""
from __future__ import annotations

import argparse

from . import proof


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    top = argparse.ArgumentParser(prog="minipt2 course", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("prove", add_help=False, help="the three-way proof of exercises")
    args, rest = top.parse_known_args(argv)
    return proof.main(rest)
