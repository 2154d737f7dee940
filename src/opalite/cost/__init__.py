"""What kernels were measured to cost: tables by device family, which their estimates read through named fields.

    tables.py    what each table has for fields, and in what unit: StagedTile, RegisterTile, Walk, ...
    lookup.py    the row for a device, and the share of its peak that a kernel reaches
    any.toml     the rows that serve every device; cpu.toml, gpu.toml: what differs there

A file named as the family of a device is read after those, and after it one for its generation (`adreno.toml`, then
`adreno-6xx.toml`; `opalite devices --json` names them). A table in it names the fields that differ, with `measured` (on
what, how) and `shown_by` (the command that shows or fits them), or nothing where nobody measured: then it is a guess
that orders kernels. Costs order what is not tuned; `opalite tune` measures on the device itself.
"""

from .table_lookup import Table, find_row, share_of_peak

__all__ = ["Table", "find_row", "share_of_peak"]
