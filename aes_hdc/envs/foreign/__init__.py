"""Suites of environments from other packages, loaded only when asked for by id."""

import functools
import importlib
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from aes_hdc.envs.base import VisualEnv
from aes_hdc.errors import UserError

# Suite -> the package it needs, which is also the name of the extra. Ids of a suite
# start with its name and an underscore, and its module here is called after it.
SUITES = {"minigrid": "minigrid"}


@functools.cache
def load(suite: str) -> Mapping[str, type[VisualEnv[Any]]]:
    """Imports a suite.

    Args:
        suite: a key of `SUITES`.

    Returns:
        Environment classes by id, in the order of the suite.

    Raises:
        ValueError: if there is no such suite.
        UserError: if its package is not installed.
    """
    if suite not in SUITES:
        raise ValueError(f"suite {suite!r}: no such suite; there are {sorted(SUITES)}")
    package = SUITES[suite]
    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"environments {suite}_*: the package {package} is not installed; run pip"
            f' install "aes_hdc[{package}]"'
        )
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "hide")
    return importlib.import_module(f"{__name__}.{suite}").environments()


def suite_of(env_id: str) -> str:
    """Returns the suite that an id belongs to by its first word; empty for our own."""
    suite = env_id.partition("_")[0]
    return suite if suite in SUITES else ""
