"""Text generation by language models: `opalite.generate` and `opalite.Generator`; needs the extra opalite-cl[llm].

folder -> (tokenizer, encoder, decoder) -> candidates for the next token (device) -> sampling (host) -> text
"""
