"""The document and the page of `opalite lens`: what the engine made of a model, node by node (docs/lens.md)."""
