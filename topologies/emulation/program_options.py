"""The options that every program of an emulated search has, whether it trains or stands in for one that does."""

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a program's parser; the dataclass that the program keeps them in says what they mean."""
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--compute-s", type=float, required=True)
    parser.add_argument("--fixed-s", type=float, default=0.0)
    parser.add_argument("--overlap", type=float, default=0.0)
    parser.add_argument("--epoch", type=int, default=1)
    parser.add_argument("--start-s", type=float, default=0.0)
    parser.add_argument("--restart-s", type=float, default=0.0)
