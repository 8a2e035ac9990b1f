"""The request of a method that trains, saved in its folder, so that it can be resumed without repeating the flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from .. import document
from ..detect import TrainConfig
from ..errors import InvalidFile
from ..files import write_atomically

_VERSION = 1


@dataclass(frozen=True)
class TrainingRequest:
    """What the requests of these methods have in common: the training, in whose folder they are saved."""

    config: TrainConfig


Request = TypeVar("Request", bound=TrainingRequest)


@dataclass(frozen=True)
class RequestFile(Generic[Request]):
    """The file that a method saves its requests in.

    Attributes:
        name: name of the file.
        kind: kind of the document.
        request_type: type of the requests.
    """

    name: str
    kind: str
    request_type: type[Request]

    def save(self, request: Request) -> None:
        """Write a request into its folder, with absolute paths."""
        config = request.config
        assert config.weights is not None  # noqa: S101  checked by the commands
        weights, data, run_dir = (path.absolute() for path in (config.weights, config.data, config.run_dir))
        saved = replace(request, config=replace(config, weights=weights, data=data, run_dir=run_dir))
        text = document.dumps(document.write(self.kind, _VERSION, saved))
        write_atomically(run_dir / self.name, lambda file: file.write(text.encode()))

    def load(self, folder: Path) -> Request:
        """Return the request in a folder, which may have been moved.

        Raises:
            InvalidFile: the file is damaged.
        """
        path = folder / self.name
        try:
            request = document.read(self.kind, _VERSION, self.request_type, document.load(path))
        except InvalidFile as error:
            raise InvalidFile(f"{path} can't be used: {error.why}", "start a new run") from None
        return replace(request, config=replace(request.config, run_dir=folder))
