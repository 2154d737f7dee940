"""Products of rows with the matrices of experts that were picked for them."""
