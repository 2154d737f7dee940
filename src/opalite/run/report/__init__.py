"""What is told about models and runs: explanation, profile, verification."""
