"""A worker as a process: `python -m hc_lens.sweep SWEEP`."""

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from threading import Thread

import torch

from hc_lens.sweep.worker import work


def _end_with_parent() -> None:
    """Die when standard input closes: when the process that started this one does, however it ends."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):  # not through sys.stdin, whose lock the interpreter wants when it ends
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    Thread(target=watch, daemon=True).start()


def main() -> None:
    """Read the command line and work."""
    parser = argparse.ArgumentParser(description=work.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", type=torch.device)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--end-with-parent", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if args.end_with_parent:
        _end_with_parent()
    work(args.sweep, args.threads, device=args.device, every=args.every)


if __name__ == "__main__":
    main()
