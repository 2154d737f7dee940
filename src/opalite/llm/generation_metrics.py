"""Figures of a generation: tokens, seconds and bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class GenerationMetrics:
    """What a text took.

    prompt_tokens: of the prompt; reused_tokens: of them what was still known from the text before. prefill_s: seconds
    for reading the others. first_token_s: from the call to the first token. tokens: written ones. decode_s: seconds
    for those after the first; the caller's own between two pieces do not count. weight_bytes: of weights on the device,
    packed as it reads them. cache_bytes: of what is kept of the tokens.
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
        """Tokens of the prompt read in a second; 0 where none were."""
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens written in a second after the first; 0 where there are none."""
        return (self.tokens - 1) / self.decode_s if self.decode_s else 0.0

    def bandwidth_share(self, bandwidth: float) -> float:
        """Bytes that a token must read (all weights, and the cache) a second, as a share of `bandwidth` in bytes a
        second."""
        return self.decode_rate * (self.weight_bytes + self.cache_bytes) / bandwidth

    def to_raw(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "prefill_rate": self.prefill_rate, "decode_rate": self.decode_rate}
