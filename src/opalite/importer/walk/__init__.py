"""Import of a model's nodes for known shapes: node contexts, constant folding, control flow, segments."""
