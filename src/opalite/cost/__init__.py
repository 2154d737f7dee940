"""Measured costs of kernels: tables by device family, which kernels' estimates read through named fields.


    cost_tables.py    fields and units of each table: StagedTile, RegisterTile, ...; the row for a device
    any.toml          rows for every device; cpu.toml and gpu.toml override them

A file named after a device family overrides those, and a file for its generation overrides that one (`adreno.toml`,
then `adreno-6xx.toml`; `opalite devices --json` names them). A table lists the fields that differ, with `measured` (on
what, how) and `shown_by` (the command that shows or fits them). A table without these two keys is a guess. Costs rank
untuned kernels; `opalite tune` measures on the device itself.
"""

from .cost_tables import Table, find_row, share_of_peak

__all__ = ["Table", "find_row", "share_of_peak"]
