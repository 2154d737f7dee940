"""The walk over a model's nodes for concrete shapes: what each operator sees, what folds, where segments end."""
