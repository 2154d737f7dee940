"""Kernels for LSTM, GRU and RNN."""
