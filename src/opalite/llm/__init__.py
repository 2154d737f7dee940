"""Text by language models: `opalite.generate` and `opalite.Generator`, the extra opalite-cl[llm].

folder -> (tokenizer, encoder, decoder) -> candidates of the next token, on the device -> a choice, on the host -> text.
"""
