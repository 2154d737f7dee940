"""Tests of opalite.lite on every device."""
