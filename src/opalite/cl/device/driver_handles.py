"""Type names of pyopencl's objects, for code outside cl/."""

from __future__ import annotations

import pyopencl as cl

Buffer = cl.Buffer
Program = cl._Program
Queue = cl.CommandQueue
