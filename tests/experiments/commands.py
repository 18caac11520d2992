"""The command line in a process of its own, on two environments and a tiny model."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = [
    "--config=configs/quickstart.py:smoke",
    "--config.environments.pool=('frozen_lake','lights_out')",
    "--config.learner.num_updates=6",
    "--config.learner.checkpoint_every=2",
]


def run_command(driver, *arguments, workdir, stages):
    """Runs it, without arguments as users do, else by the code of a driver.

    Args:
        driver: Python; it finds the arguments in sys.argv[1:], the command line's after
            them.
        arguments: of the driver.
        workdir: run folder.
        stages: names, with commas.

    Returns:
        The ended process: its exit status, and what it said as text.
    """
    start = (
        ["-c", driver, *map(str, arguments)]
        if arguments
        else ["-m", "experiments.main"]
    )
    return subprocess.run(
        [
            sys.executable,
            *start,
            *COMMAND,
            f"--workdir={workdir}",
            f"--stages={stages}",
        ],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
