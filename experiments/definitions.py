"""The stages: in which order they run, and what each of them reads."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """What a stage reads.

    Attributes:
        sections: keys of the config, the stage's own last; a change of any makes the
            stage another one.
        needs: stages without whose results it cannot run.
        uses: stages whose results it takes where they are there.
        grows: dotted key that may rise to carry on with a finished stage.
        ignores: dotted keys of its sections that it does not read.
        options: further sections, read where the config has them.
    """

    sections: tuple[str, ...]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    grows: str = ""
    ignores: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """All stages it may read."""
        return self.needs + self.uses


_PLAY = ("seed", "environments", "model", "rollout")
# In the order in which they run: a stage reads earlier ones only.
DEFINITIONS = {
    "collect": Definition((*_PLAY, "collect")),
    "profile": Definition(("profile",), needs=("collect",)),
    "gradients": Definition(
        (*_PLAY, "learner", "gradients"),
        ignores=(
            "learner.num_updates",
            "learner.checkpoint_every",
            "learner.example_every",
        ),
    ),
    "select": Definition(("seed", "selection"), needs=("profile", "gradients")),
    "train": Definition(
        (*_PLAY, "curriculum", "learner"),
        uses=("select",),
        grows="learner.num_updates",
        options=("base_model", "imitation"),
    ),
    "evaluate": Definition((*_PLAY, "evaluation"), uses=("select", "train")),
    "report": Definition(
        (), uses=("collect", "profile", "gradients", "select", "train", "evaluate")
    ),
}
STAGES = tuple(DEFINITIONS)


def stage_versions(environments: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    """Returns what `make_plan` is to know of the environments' versions.

    Args:
        environments: version by id.
    """
    return {
        name: environments
        for name, definition in DEFINITIONS.items()
        if "environments" in definition.sections
    }


def dependents(name: str) -> list[str]:
    """Returns every stage that reads `name`, directly or not, in order."""
    found = [name]
    for other, definition in DEFINITIONS.items():
        if any(given in found for given in definition.inputs):
            found.append(other)
    return found[1:]
