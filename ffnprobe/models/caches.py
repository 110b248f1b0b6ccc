"""The folder for files that can be made again: `$FFNPROBE_CACHE`, else the user's cache folder."""

import os
from pathlib import Path

from platformdirs import user_cache_path

CACHE = "FFNPROBE_CACHE"


def cache_folder() -> Path:
    """Return the folder; on Linux `$XDG_CACHE_HOME/ffnprobe`, else `~/.cache/ffnprobe`."""
    named = os.environ.get(CACHE)
    return Path(named).expanduser() if named else user_cache_path("ffnprobe", appauthor=False)
