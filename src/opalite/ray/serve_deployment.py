"""deployment: a model as a Ray Serve application, with Ray Serve's batching."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import OpaliteError
from ..extras import need
from .predictor import Predictor, Source

Row = Mapping[str, Any]


class BatchedRows:
    """Computes rows that arrive separately, in one run for each set of shapes."""

    def __init__(self, model: Source | Any, options: Mapping[str, Any]) -> None:
        self._predictor = Predictor(model, **options)

    def compute(self, rows: Sequence[Row]) -> list[dict[str, Any] | OpaliteError]:
        """The outputs or the error of each row. An error affects only rows of the same shapes."""
        groups: dict[Any, list[int]] = {}
        arrays = [{name: np.asarray(value) for name, value in row.items()} for row in rows]
        for i, row in enumerate(arrays):
            groups.setdefault(tuple((n, a.dtype, a.shape) for n, a in sorted(row.items())), []).append(i)
        found: list[dict[str, Any] | OpaliteError] = [{}] * len(rows)
        for members in groups.values():
            try:
                batch = {name: np.stack([arrays[i][name] for i in members]) for name in arrays[members[0]]}
                columns = self._predictor(batch)
                for place, i in enumerate(members):
                    found[i] = {name: column[place] for name, column in columns.items()}
            except OpaliteError as e:
                for i in members:
                    found[i] = e
        return found


def deployment(
    model: Source | Any,
    *,
    max_batch_size: int = 16,
    batch_wait_timeout_s: float = 0.002,
    predictor: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Create a Ray Serve application: `serve.run(opalite.ray.deployment("model.onnx", num_replicas=2))`.

    `handle.predict.remote({"x": row})` takes one row's inputs by name, and returns its outputs by name. HTTP clients
    POST the inputs as JSON {"x": [...]}, and get JSON. Rows that arrive within `batch_wait_timeout_s` form a batch of
    at most `max_batch_size` rows (`serve.batch`). Only the rows that do not fit fail, with status 400.

    model: a path that exists on every node, bytes, or a result of `opalite.ray.put`.
    predictor: arguments of Predictor (inputs, outputs, constants, precision, ...).
    options: arguments of `serve.deployment` (name, num_replicas, ray_actor_options, autoscaling_config, ...).
    """
    serve = need("ray.serve", "opalite.ray.deployment", "ray")

    class Model:
        def __init__(self, model: Any, settings: Mapping[str, Any]) -> None:
            self._rows = BatchedRows(model, settings)

        @serve.batch(  # type: ignore[untyped-decorator]
            max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s
        )
        async def _compute(self, rows: list[Row]) -> list[Any]:
            return await asyncio.to_thread(self._rows.compute, rows)

        async def predict(self, row: Row) -> dict[str, Any]:
            found: dict[str, Any] | OpaliteError = await self._compute(row)
            if isinstance(found, OpaliteError):
                raise found
            return found

        async def __call__(self, request: Any) -> Any:
            from starlette.responses import JSONResponse

            try:
                row = await request.json()
                if not isinstance(row, dict):
                    raise ValueError("the body is an object of inputs by name")
                found = await self.predict(row)
            except (OpaliteError, ValueError) as e:
                return JSONResponse({"error": str(e)}, 400)
            return JSONResponse({name: np.asarray(value).tolist() for name, value in found.items()})

    named = {"name": "opalite", **options}
    return serve.deployment(**named)(Model).bind(model, dict(predictor or {}))
