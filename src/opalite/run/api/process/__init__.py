"""Sessions in processes of their own."""
