"""Metrics of a generation: tokens, seconds and bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class GenerationMetrics:
    """Tokens, times and memory of one generation.

    prompt_tokens: length of the prompt; reused_tokens: prompt tokens already in the caches. prefill_s: seconds for
    reading the others. first_token_s: seconds from the call to the first token. tokens: number of generated tokens.
    decode_s: seconds for the tokens after the first, without the caller's time between pieces. weight_bytes: packed
    weights on the device. cache_bytes: size of the KV caches.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    tokens: int = 0
    decode_s: float = 0.0
    weight_bytes: int = 0
    cache_bytes: int = 0

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens read per second; 0 if none were read."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_rate(self) -> float:
        """Generated tokens per second after the first; 0 without any."""
        return (self.tokens - 1) / self.decode_s if self.decode_s else 0.0

    def bandwidth_share(self, bandwidth: float) -> float:
        """Return the used share of `bandwidth` (bytes/s); a token reads all weights and the caches."""
        return self.decode_rate * (self.weight_bytes + self.cache_bytes) / bandwidth

    def to_raw(self) -> dict[str, Any]:
        """Return the metrics and rates as a JSON object."""
        return {**asdict(self), "prefill_rate": self.prefill_rate, "decode_rate": self.decode_rate}
