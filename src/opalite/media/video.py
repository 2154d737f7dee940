"""Frames of a film or a camera, and films of frames, by the package av."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from ..errors import InputError
from ..extras import need

FILMS = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".m4v")


def is_video(source: str) -> bool:
    """Whether `source` names a film by its suffix, or a camera by its number or device."""
    return source.isdecimal() or source.startswith("/dev/video") or Path(source).suffix.lower() in FILMS


def frames(source: str, most: int | None = None) -> Iterator[Image.Image]:
    """Read the frames of a film, or of a camera until `most` are read, in RGB. InputError if it cannot be opened."""
    av = need("av", "reading films and cameras", "video")
    camera = source.isdecimal() or source.startswith("/dev/")
    place = f"/dev/video{source}" if source.isdecimal() else source
    if not Path(place).exists():
        what = f"camera {source}: there is no {place}" if camera else f"input file {place} does not exist"
        raise InputError(what)
    count = 0
    try:
        with av.open(place, format="v4l2" if camera else None) as held:
            if not held.streams.video:
                raise InputError(f"{place} holds no pictures")
            for frame in held.decode(video=0):
                yield frame.to_image()
                count += 1
                if most is not None and count >= most:
                    return
    except (av.error.FFmpegError, OSError, ValueError) as e:
        raise InputError(f"{place} could not be read as a film: {e}") from e
    if not count:
        raise InputError(f"{place} holds no frames")


_RATE = 25  # frames in a second of films that are written


class FilmWriter:
    """A film that is written frame by frame; its size is the first frame's."""

    def __init__(self, path: Path) -> None:
        self._av = need("av", "writing films", "video")
        self.path = path
        self._container: Any = None
        self._stream: Any = None

    def write(self, picture: Image.Image) -> None:
        """Add a frame."""
        if self._container is None:
            try:
                self._container = self._av.open(str(self.path), "w")
                self._stream = self._container.add_stream("libx264" if self.path.suffix != ".webm" else "vp9", _RATE)
            except (self._av.error.FFmpegError, OSError, ValueError) as e:
                raise InputError(f"{self.path} cannot be written: {e}") from e
            self._stream.width, self._stream.height = (d // 2 * 2 for d in picture.size)
            self._stream.pix_fmt = "yuv420p"
        size = (self._stream.width, self._stream.height)
        frame = self._av.VideoFrame.from_image(picture if picture.size == size else picture.resize(size))
        for packet in self._stream.encode(frame):
            self._container.mux(packet)

    def close(self) -> None:
        """Finish the file."""
        if self._container is not None:
            for packet in self._stream.encode():
                self._container.mux(packet)
            self._container.close()
            self._container = None
