"""Register tiles of plain multiply-adds, for GPUs: what matrix products and convolutions share."""
