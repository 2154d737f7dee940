"""Register tiles of plain multiply-adds on GPUs, shared by matrix products and convolutions."""
