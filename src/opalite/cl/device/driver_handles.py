"""The driver's objects by name, for code above cl/ that keeps them and passes them on."""

from __future__ import annotations

import pyopencl as cl

Buffer = cl.Buffer
Program = cl._Program
Queue = cl.CommandQueue
