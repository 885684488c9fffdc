"""A worker as a process: `python -P -m hc_lens.sweep SWEEP`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from threading import Thread

from hc_lens.sweep.job import register_name


def _end_with_parent() -> None:
    """Die when standard input closes: when the process that started this one does, however it ends."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):  # not through sys.stdin, whose lock the interpreter wants when it ends
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    Thread(target=watch, daemon=True).start()


def main() -> None:
    """Read the command line and work."""
    import torch

    from hc_lens.sweep.worker import work

    parser = argparse.ArgumentParser(description=work.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", type=torch.device)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--end-with-parent", action="store_true")
    parser.add_argument(
        "--job", action="append", default=[], help="module:Class of a class of jobs that is not the program's own"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if args.end_with_parent:
        _end_with_parent()
    for name in args.job:
        register_name(name)
    work(args.sweep, args.threads, device=args.device, every=args.every)


if __name__ == "__main__":
    main()
