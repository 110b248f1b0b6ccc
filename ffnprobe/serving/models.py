"""The models a server has, by name: loaded when first asked for, dropped when memory is needed."""

import difflib
from collections.abc import Sequence

from ffnprobe.cache import LRUCache
from ffnprobe.errors import ModelNotLoaded, OptionRefused
from ffnprobe.models.loading import load
from ffnprobe.models.model import Model
from ffnprobe.models.sources import find_source

GB = 2**30
# The weights as they are, and questions, answers and tokens folded in fp32.
COPIES = 3
BYTES_OF_A_NUMBER = 4


class ServedModels:
    """Models by name, the first the default; only these are served, whatever a client asks for."""

    def __init__(self, sources: Sequence[str], *, device: str = "auto", most_bytes: int) -> None:
        self.sources: dict[str, str] = {}
        for given in sources:
            name = _short_name(given)
            if name in self.sources:
                raise OptionRefused(
                    f"two models have the name {name}.", remedy="folders of other names"
                )
            self.sources[name] = given
        self._device = device
        self._loaded = LRUCache(most=len(sources), most_bytes=most_bytes)

    @property
    def default(self) -> str:
        """The name of the model that is asked where none is named."""
        return next(iter(self.sources))

    def get(self, name: str | None) -> Model:
        """Return a model by name, loading it if it is not in memory, or say which there are."""
        wanted = self.default if name is None else name
        if wanted not in self.sources:
            near = difflib.get_close_matches(wanted, self.sources, 1)
            raise ModelNotLoaded(
                f'"{wanted}" is not served; served are {", ".join(self.sources)}.',
                remedy=near[0] if near else self.default,
            )
        return self._loaded.get_or_make(
            wanted, lambda: load(self.sources[wanted], device=self._device), size=_size
        )


def _short_name(given: str) -> str:
    source = find_source(given)
    return given if source.is_known_by(given) else source.where.rstrip("/").rpartition("/")[2]


def _size(model: Model) -> int:
    return COPIES * BYTES_OF_A_NUMBER * model.config.parameters()
