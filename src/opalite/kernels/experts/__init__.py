"""Mixture-of-experts products: rows times the matrices of the experts selected for them."""
