"""Profiles as arrays, the form in which selection takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aes_hdc.profiles.aggregate import Profile


@dataclass(frozen=True, slots=True)
class Matrices:
    """Profiles as arrays over environments and abilities.

    Attributes:
        env_ids: [E] names.
        abilities: [A] names, every one kept in some profile, sorted.
        core: [E, A] bool.
        soft: [E, A] bool.
        prevalence: [E, A] float64, in [0, 1].
        transitions: [E, A, A] float64, counts of a -> b.
    """

    env_ids: tuple[str, ...]
    abilities: tuple[str, ...]
    core: np.ndarray
    soft: np.ndarray
    prevalence: np.ndarray
    transitions: np.ndarray


def matrices(profiles: Mapping[str, Profile], env_ids: Sequence[str]) -> Matrices:
    """Lays out the profiles of some environments, in the given order."""
    names = sorted({name for env_id in env_ids for name in profiles[env_id].abilities})
    shape = (len(env_ids), len(names))
    core, soft = np.zeros(shape, bool), np.zeros(shape, bool)
    prevalence, edges = np.zeros(shape), np.zeros((*shape, len(names)))
    for e, env_id in enumerate(env_ids):
        for name, ability in profiles[env_id].abilities.items():
            a = names.index(name)
            prevalence[e, a] = ability.prevalence
            (core if ability.status == "core" else soft)[e, a] = True
        for source, target, count in profiles[env_id].transitions:
            edges[e, names.index(source), names.index(target)] = count
    return Matrices(tuple(env_ids), tuple(names), core, soft, prevalence, edges)
