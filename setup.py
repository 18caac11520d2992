"""Packaging: dependencies are ranges here and exact in launch/constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent

CORE = [
    "absl-py",
    "flax>=0.12.5",
    "gymnasium>=1.0",
    "jax>=0.9",
    "jinja2",
    "matplotlib",
    "ml_collections",
    "numpy>=2",
    "optax",
    "orbax-checkpoint",
    "pillow",
    "safetensors",
    "tokenizers",
]
EXTRAS = {
    "dev": [
        "chex",
        "hypothesis",
        "minigrid",
        "mypy",
        "pre-commit",
        "pytest",
        "pytest-timeout",
        "pytest-xdist",
        "ruff",
        "tensorboardX",
    ],
    "tpu": ["jax[tpu]"],
    "cuda": ["jax[cuda12]"],
    "annotate": ["anthropic"],
    "tfds": [
        "array_record>=0.8",
        "grain>=0.2.15",
        "importlib_resources",  # tensorflow-datasets needs it and does not say so.
        "tensorflow-datasets>=4.9.9",
    ],
    "tensorboard": ["tensorboardX"],
    "wandb": ["wandb"],
    "minigrid": ["minigrid"],
    # A looser pin of torch fetches a CUDA build of several gigabytes.
    "parity": ["torch==2.13.0", "rlax", "transformers"],
    "bench": ["psutil"],
}


def version() -> str:
    """Reads the version as text, so that building imports none of the package."""
    source = (ROOT / "aes_hdc" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if match is None:
        raise ValueError("aes_hdc/__init__.py: no __version__ line")
    return match.group(1)


setup(
    name="aes_hdc",
    version=version(),
    description="Vision-language agents trained on selected, ordered environments",
    long_description=(
        (ROOT / "README.md").read_text(encoding="utf-8")
        if (ROOT / "README.md").exists()
        else ""
    ),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["aes_hdc", "aes_hdc.*"]),
    package_data={
        "aes_hdc": [
            "py.typed",
            "abilities.toml",
            "assets/**/*",
            "evaluation/templates/*",
        ]
    },
    install_requires=CORE,
    extras_require=EXTRAS,
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
