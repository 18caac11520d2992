"""Says whether a config fits a TPU topology, and how fast it could be. Needs no TPU.

python -m experiments.plan --config=FILE[:arg] --topology=v5e:4x4
    [--config.section.key=value]  change a value of the config
    [--out=FILE]                  write the table there as JSON too

Every program of the run is compiled by the real TPU compiler (extra `tpu`) with
abstract arguments; no weights are read. Without the compiler the analytic part remains.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from aes_hdc import storage
from aes_hdc.errors import UserError
from experiments import options

# Read by JAX and libtpu when they are first imported: no chip is looked for.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0 if every program fits, else 1.

    Args:
        argv: the arguments without the program's name; those of the process if None.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or {"-h", "--help", "-help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        return _run(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str]) -> int:
    given, overrides = _split(arguments)
    config = options.load_config(given["config"])
    options.apply_overrides(config, overrides)
    os.environ |= ENVIRONMENT
    from experiments.planner import table  # Imports JAX.

    rows = table.make_rows(config.to_dict(), given["topology"])
    if given.get("out"):
        storage.write_json(given["out"], {"topology": given["topology"], "rows": rows})
    return 0 if all(row.get("fits", True) for row in rows) else 1


def _split(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Separates our own flags from changes of the config."""
    given: dict[str, Any] = {}
    overrides = []
    for argument in arguments:
        name, _, value = argument.lstrip("-").partition("=")
        if name.startswith("config."):
            overrides.append(argument)
        elif name in ("config", "topology", "out") and value and name not in given:
            given[name] = value
        else:
            raise UserError(f"{argument}: no such flag, or a second one; see --help")
    for name in ("config", "topology"):
        if name not in given:
            raise UserError(f"--{name}=... is missing; see --help")
    return given, overrides


if __name__ == "__main__":
    sys.exit(main())
