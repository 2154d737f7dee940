"""Moving elements: copies between views, transposes, padding, gathering, scattering, casts of layout."""
