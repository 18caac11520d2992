"""Where scalars go beside the JSON lines: TensorBoard and Weights & Biases.

Both are conveniences. Whatever goes wrong in one of them is said once, and the run goes
on without it.
"""

import functools
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from aes_hdc import storage


class Writer(Protocol):
    """Takes scalars by name."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the scalars of an update."""
        ...

    def close(self) -> None:
        """Writes what is left and lets go."""
        ...


class TensorBoard:
    """Event files for TensorBoard; needs the extra `tensorboard`."""

    def __init__(self, folder: Path) -> None:
        """Opens a new event file in the folder."""
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the scalars of an update."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases; needs the extra `wandb`.

    The run's id lies in the folder, so that a resumed run carries its curves on.
    """

    def __init__(
        self,
        folder: Path,
        mode: Literal["online", "offline"],
        config: Mapping[str, Any],
    ) -> None:
        """Starts or resumes the run.

        Args:
            folder: of the train stage.
            mode: offline runs are uploaded later, by `wandb sync`.
            config: of the whole run.
        """
        import wandb

        path = folder / "wandb_id"
        if not path.exists():
            storage.write_text(path, uuid.uuid4().hex[:16])
        self._run = wandb.init(
            id=path.read_text(),
            resume="allow",
            mode=mode,
            dir=str(folder),
            project="aes_hdc",
            config=dict(config),
        )

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Writes the scalars of an update."""
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        """Ends the run."""
        self._run.finish()


class Writers:
    """Hands scalars to every writer that works; one that fails is left out from then.

    Attributes:
        names: of the writers that work.
    """

    def __init__(self, factories: Mapping[str, Callable[[], Writer]]) -> None:
        """Opens the writers."""
        self._writers: dict[str, Writer] = {}
        for name, factory in factories.items():
            writer = self._guarded(name, factory)
            if writer is not None:
                self._writers[name] = writer

    def __enter__(self) -> "Writers":
        """Returns the writers, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes every writer."""
        self.close()

    @property
    def names(self) -> Sequence[str]:
        """Names of the writers that work."""
        return [*self._writers]

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes all numbers of a record of metrics, see `scalars`."""
        numbers = dict(scalars(metrics))
        for name, writer in [*self._writers.items()]:
            self._guarded(name, functools.partial(writer.write, step, numbers))

    def close(self) -> None:
        """Closes every writer."""
        for name, writer in [*self._writers.items()]:
            self._guarded(name, writer.close)
        self._writers.clear()

    def _guarded(self, name: str, action: Callable[[], Any]) -> Any:
        """Does something with a writer; drops the writer where that fails."""
        try:
            return action()
        except Exception as error:  # Whatever a logger does, training goes on.
            logging.warning(
                "%s fails (%s: %s); the run goes on without it",
                name,
                type(error).__name__,
                error,
            )
            self._writers.pop(name, None)
            return None


def scalars(
    metrics: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, float]]:
    """Yields (path, number) for every number in nested metrics.

    A pair of counts, as in success tables, becomes their ratio.
    """
    for name, value in metrics.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from scalars(value, f"{path}/")
        elif isinstance(value, bool | int | float):
            yield path, float(value)
        elif isinstance(value, Sequence) and prefix.startswith("success/"):
            solved, played = value
            if played:
                yield path, solved / played
