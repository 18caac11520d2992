"""Visual environments in NumPy and Pillow: `make` one by id, `all_specs` lists them."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from aes_hdc.envs import base, families, foreign
from aes_hdc.envs.base import Level, Spec, Step, VisualEnv

__all__ = ["Level", "Spec", "Step", "VisualEnv", "all_specs", "load_suite", "make"]


@functools.cache
def _registry() -> dict[str, type[VisualEnv[Any]]]:
    """Imports every module of `families`, found by listing the folder."""
    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")
    return base.REGISTRY


def make(env_id: str, *, max_actions: int = 1, strict: bool = False) -> VisualEnv[Any]:
    """Makes an environment.

    Args:
        env_id: an id from `all_specs` or of a suite, such as "minigrid_door_key".
        max_actions: actions that one reply may chain with ";".
        strict: accept only actions inside an answer tag.

    Raises:
        ValueError: if the id is unknown; the message lists the known ones.
        UserError: if it belongs to a suite whose package is not installed.
    """
    registry: Mapping[str, type[VisualEnv[Any]]] = _registry()
    if suite := foreign.suite_of(env_id):
        registry = foreign.load(suite)
    if env_id not in registry:
        known = ", ".join(sorted(registry))
        raise ValueError(f"env_id {env_id!r}: no such environment; there are {known}")
    return registry[env_id](max_actions=max_actions, strict=strict)


def all_specs() -> tuple[Spec, ...]:
    """Returns the specs of all environments, sorted by id."""
    registry = _registry()
    return tuple(registry[env_id].spec for env_id in sorted(registry))


def load_suite(name: str) -> tuple[Spec, ...]:
    """Returns the specs of a suite of foreign environments, easiest first.

    Its environments are never among `all_specs`; `make` knows them by the suite's name
    with which their ids start.

    Raises:
        ValueError: if there is no such suite.
        UserError: if its package is not installed.
    """
    return tuple(kind.spec for kind in foreign.load(name).values())
