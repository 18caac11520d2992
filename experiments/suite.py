"""Which environments a run is about, and how hard they may get."""

from collections.abc import Sequence
from dataclasses import dataclass

from aes_hdc import envs
from aes_hdc.episode import Harness
from aes_hdc.errors import UserError


@dataclass(frozen=True)
class Suite:
    """The environments of a run.

    Attributes:
        pool: ids of the candidates of selection, sorted; also the ID panel.
        ood: ids of the OOD panel, sorted; never in profiles, selection or training.
        ladder: harness sets, from the most help to none.
        targets: target scale level of every environment.
        versions: version of every environment.
        frame_px: side of the frames.
        max_turns: longest episode, in turns.
    """

    pool: tuple[str, ...]
    ood: tuple[str, ...]
    ladder: tuple[Harness, ...]
    targets: dict[str, int]
    versions: dict[str, int]
    frame_px: int
    max_turns: int

    @property
    def env_ids(self) -> tuple[str, ...]:
        """All environments."""
        return self.pool + self.ood


def load_suite(
    *,
    suite: str,
    pool: Sequence[str],
    ood: Sequence[str],
    ladder: Sequence[str],
    top_level: int,
    frame_px: int,
    max_turns: int,
) -> Suite:
    """Looks the environments up.

    Args:
        suite: "" for our own environments, or the name of a suite of foreign ones.
        pool: ids; empty takes every environment whose split is "pool".
        ood: ids; empty takes every one whose split is "ood".
        ladder: harness labels, from the most help to none.
        top_level: highest scale level of training; -1 leaves each environment its own
            target, the third level from the top.
        frame_px: side of the frames.
        max_turns: longest episode, in turns.

    Raises:
        UserError: if a name is unknown, a panel has an environment of the other, or a
            number is out of range.
    """
    if max_turns < 1:
        raise UserError(f"environments.max_turns is {max_turns}; give 1 or more")
    known = envs.load_suite(suite) if suite else envs.all_specs()
    specs = {spec.id: spec for spec in known}
    chosen = {}
    for name, given in (("pool", pool), ("ood", ood)):
        unknown = sorted(set(given) - set(specs))
        if unknown:
            raise UserError(
                f"environments.{name}: no environment {unknown[0]!r}; have"
                f" {', '.join(sorted(specs))}"
            )
        every = [env_id for env_id, spec in specs.items() if spec.split == name]
        chosen[name] = tuple(sorted(given or every))
    both = set(chosen["pool"]) & set(chosen["ood"])
    if both:
        raise UserError(f"environments: {sorted(both)} are in pool and ood; choose one")
    try:
        rungs = tuple(Harness.parse(label) for label in ladder)
    except ValueError as error:
        raise UserError(f"environments.ladder: {error}") from error
    targets = {}
    for env_id in chosen["pool"] + chosen["ood"]:
        own = max(len(specs[env_id].levels) - 3, 0)
        targets[env_id] = own if top_level < 0 else min(own, top_level)
        level = specs[env_id].levels[targets[env_id]]
        if level.min_px > frame_px:
            raise UserError(
                f"environments.frame_px is {frame_px}: level {targets[env_id]} of"
                f" {env_id} needs {level.min_px}; raise it or lower top_level"
            )
    versions = {env_id: specs[env_id].version for env_id in targets}
    return Suite(
        chosen["pool"], chosen["ood"], rungs, targets, versions, frame_px, max_turns
    )
