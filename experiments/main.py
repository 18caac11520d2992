"""Runs the stages of an experiment in a run folder.

python -m experiments.main --config=FILE[:arg] --workdir=DIR
    [--stages=a,b]                stages to run; default all, or the config's own
    [--restart=STAGE]             make STAGE and all that depends on it again
    [--config.section.key=value]  change a value of the config
    [--trace]                     write a profile of the run to DIR/trace

The same command again carries on what was interrupted and skips what is up to date.
FILE may be the config.json of a run folder. Everything is checked before it starts.
"""

import difflib
import faulthandler
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from aes_hdc import stamps, storage
from aes_hdc.errors import UserError
from experiments import artefacts, options, preemption, progress
from experiments.suite import load_suite

_OVERRIDE = re.compile(r"--?(no)?config\.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status.

    Args:
        argv: the arguments without the program's name; those of the process if None.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help", "-help"} & set(arguments):
        print(__doc__)
        return 0
    preemption.listen()
    try:
        _run(arguments)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except preemption.Stopped:
        print("stopped; the same command carries on", flush=True)
    return 0


def _run(arguments: Sequence[str]) -> None:
    """Checks everything, says what is to be done, and does it."""
    overrides = [text for text in arguments if _OVERRIDE.match(text)]
    values = _parse([text for text in arguments if not _OVERRIDE.match(text)])
    config = options.load_config(values.config)
    options.apply_overrides(config, overrides)
    stages = _stage_names(values.stages, config)
    plain = config.to_dict()
    workdir = Path(values.workdir).expanduser().absolute()
    versions = None
    if "environments" in plain:
        environments = load_suite(**plain["environments"]).versions
        versions = artefacts.stage_versions(environments)
    restart = values.restart or None
    plan = artefacts.make_plan(plain, workdir, stages, restart, versions)
    check_workdir(workdir)
    with artefacts.lock(workdir):
        _record(workdir, plain, arguments)
        print(progress.plan_text(plan, workdir, stamps.config_hash(plain)), flush=True)
        # Imports JAX, so it comes after everything that can be wrong.
        from experiments import stages as runner

        if values.trace:
            import jax

            with jax.profiler.trace(str(workdir / "trace")):
                runner.run(plain, workdir, stages, restart)
        else:
            runner.run(plain, workdir, stages, restart)


def _parse(arguments: Sequence[str]) -> flags.FlagValues:
    """Reads the plain flags.

    Raises:
        UserError: for an unknown flag, a missing one, or an argument without dashes.
    """
    values = flags.FlagValues()
    for name in ("config", "workdir", "stages", "restart"):
        flags.DEFINE_string(name, "", "", flag_values=values)
    flags.DEFINE_bool("trace", False, "", flag_values=values)
    names = ("config", "restart", "stages", "trace", "workdir")
    for text in arguments:
        name = text.lstrip("-").partition("=")[0]
        if text.startswith("-") and name.removeprefix("no") not in (*names, ""):
            near = difflib.get_close_matches(name, names, n=1)
            hint = (
                f"did you mean --{near[0]}" if near else f"--config.{name} sets a key"
            )
            have = ", ".join(f"--{known}" for known in names)
            raise UserError(f"--{name}: no such flag; {hint}; have {have}")
    try:
        extra: list[str] = values(["main", *arguments])[1:]
    except flags.Error as error:
        raise UserError(str(error).rstrip(".").lower()) from error
    if extra:
        hint = f"; did you mean --{extra[0].lstrip('-')}" if "=" in extra[0] else ""
        raise UserError(
            f"argument {extra[0]!r} is no flag{hint}; write --name=value, with two"
            " dashes and without spaces"
        )
    for needed in ("config", "workdir"):
        if not values[needed].value:
            raise UserError(f"--{needed} is missing; see --help")
    return values


def _stage_names(text: str, config: Any) -> list[str]:
    """The stages asked for, in the order in which they run.

    A config that is for some stages only, such as one that makes a base model, has
    their names in `stages`.
    """
    names = text.split(",") if text else list(artefacts.STAGES)
    if not text and "stages" in config:
        names = list(config.stages)
    for name in names:
        if name not in artefacts.STAGES:
            near = difflib.get_close_matches(name, artefacts.STAGES, n=1)
            hint = f"did you mean {near[0]}; " if near else ""
            raise UserError(
                f"--stages={text}: no stage {name!r}; {hint}have"
                f" {', '.join(artefacts.STAGES)}"
            )
    return [name for name in artefacts.STAGES if name in names]


def check_workdir(workdir: Path) -> None:
    """Makes the run folder if absent and writes a file to it.

    Raises:
        UserError: if it cannot be made or written.
    """
    probe = workdir / ".probe"
    try:
        storage.write_bytes(probe, b"")
        probe.unlink()
    except UserError as error:
        reason = str(error).rpartition(": ")[2]
        raise UserError(
            f"--workdir={workdir}: {reason}; give a folder that can be written"
        ) from error


def _record(workdir: Path, config: Mapping[str, Any], argv: Sequence[str]) -> None:
    """Writes what is being run: the config, and a line on this start."""
    storage.write_json(workdir / "config.json", config)
    with storage.JsonLog(workdir / "runs.jsonl") as log:
        log.append(
            {
                "argv": list(argv),
                "config_hash": stamps.config_hash(config),
                "git": stamps.git_commit(Path(__file__).parent),
                "started": time.time(),
                "versions": stamps.versions(),
            }
        )


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main())
