"""Writes the catalogue and the golden file from the registry.

    python -m aes_hdc.envs.catalog

Run it in the repository's root after adding or changing an environment. It writes
docs/CATALOG.md, a picture of each environment in docs/catalog/, and the golden file
that keeps environments from changing without a new version.
"""

import inspect
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from PIL import Image

from aes_hdc import envs
from aes_hdc.envs import actions
from aes_hdc.envs.base import Spec
from aes_hdc.errors import UserError

PICTURE_PX = 256
DOCS = Path("docs")
GOLDEN = Path("tests/envs/golden/environments.json")
HEADER = """\
# Environments

Written by `python -m aes_hdc.envs.catalog`; do not edit. S: one answer; M: many turns;
B: both forms. *pool* environments may be trained on, *ood* ones are only evaluated.

| | environment | turns | split | family, cluster | levels | abilities |
|---|---|---|---|---|---|---|
"""


def golden() -> dict[str, Any]:
    """Returns each environment's version and a hash of its first states by level.

    Texts are hashed, and no frames: glyphs and edges may differ between versions of
    Pillow.
    """
    found = {}
    for spec in envs.all_specs():
        env, hashes = envs.make(spec.id), []
        for level in range(len(spec.levels)):
            start = env.reset(0, level)
            text = "\n".join(
                [
                    env.dump(start),
                    str(start.budget),
                    env.goal(start),
                    actions.grammar_text(env.grammar(start)),
                ]
            )
            hashes.append(blake2b(text.encode(), digest_size=8).hexdigest())
        found[spec.id] = {"version": spec.version, "levels": hashes}
    return {"schema": 1, "environments": found}


def table() -> str:
    """Returns the catalogue as Markdown."""
    return HEADER + "".join(_row(spec) for spec in envs.all_specs())


def _row(spec: Spec) -> str:
    """One line of the table."""
    env = envs.make(spec.id)
    rule = (inspect.getdoc(type(env)) or "").split("\n\n")[0].replace("\n", " ")
    line = actions.grammar_text(env.grammar(env.reset(0, 0))).replace("|", "\\|")
    cells = [
        f'<img src="catalog/{spec.id}.png" width="128" alt="{spec.id}">',
        f"**`{spec.id}`** {rule}<br>`{line}`",
        spec.turns,
        spec.split,
        f"{spec.family} {spec.cluster}".strip(),
        f"{len(spec.levels)}, from {spec.levels[0].min_px} px",
        ", ".join(spec.abilities),
    ]
    return "| " + " | ".join(cells) + " |\n"


def write(root: Path) -> None:
    """Writes the catalogue, the pictures and the golden file below the root.

    Raises:
        UserError: if the root holds no `tests/envs`.
    """
    if not (root / GOLDEN).parent.parent.is_dir():
        raise UserError(f"{root} is not the repository: no tests/envs; run it there")
    pictures = root / DOCS / "catalog"
    pictures.mkdir(parents=True, exist_ok=True)
    (root / GOLDEN).parent.mkdir(exist_ok=True)
    for spec in envs.all_specs():
        env = envs.make(spec.id)
        frame = env.render(env.reset(1, len(spec.levels) // 2), PICTURE_PX)
        Image.fromarray(frame).save(pictures / f"{spec.id}.png", optimize=True)
    (root / DOCS / "CATALOG.md").write_text(table(), encoding="ascii")
    text = json.dumps(golden(), indent=1, allow_nan=False)
    (root / GOLDEN).write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    write(Path.cwd())
