"""Tokenizer: encodes text, decodes tokens incrementally, and applies chat templates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from ..errors import InputError, ModelFileError
from ..extras import need
from .model_folder import ModelFolder

Message = Mapping[str, Any]
_REPLACEMENT = "\ufffd"
"""Replacement character: the decoding of bytes that are no complete character."""


class Tokenizer:
    """Tokenizer and chat template of a folder. ModelFileError if tokenizer.json is missing."""

    def __init__(self, folder: ModelFolder) -> None:
        tokenizers = need("tokenizers", "turning text into tokens", "llm")
        path = folder.path / "tokenizer.json"
        if not path.exists():
            raise ModelFileError(
                f"{folder.path} has no tokenizer.json; AutoTokenizer.from_pretrained(...).save_pretrained(folder) of "
                "transformers writes one"
            )
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as e:  # the package raises Exception itself
            raise InputError(f"{path} cannot be read: {e}") from e
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._folder = folder

    @property
    def size(self) -> int:
        """The number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Encode text to tokens; special: include the tokenizer's special tokens. InputError for text that is none."""
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise InputError(f"the text is no Unicode at character {e.start}: half of a surrogate pair") from None
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens to text, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def token(self, text: str) -> int | None:
        """Return the number of the token that is `text`, None if there is none."""
        found = self._tokenizer.token_to_id(text)
        return None if found is None else int(found)

    @property
    def added_tokens(self) -> dict[str, int]:
        """Tokens beside those of the language: ends, roles, languages."""
        return {t.content: int(n) for n, t in self._tokenizer.get_added_tokens_decoder().items()}

    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None, **options: Any
    ) -> str:
        """Render messages by the model's chat template, up to the beginning of the answer.

        messages: {"role": "user", "content": "..."} etc. tools: descriptions of functions. options: further variables
        of the template. InputError if there is no template, or if it raises an error.
        """
        template = self._template("tool_use" if tools else "default")
        sandbox = need("jinja2.sandbox", "a chat template", "llm")
        extensions = ["jinja2.ext.loopcontrols", _generation_tag()]
        made = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        made.filters["tojson"] = _to_json
        made.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        made.globals["raise_exception"] = _refuse
        config = self._folder.tokenizer
        given = {n: _content(config[n]) for n in config if n.endswith("_token") and config[n] is not None}
        given |= {"messages": messages, "add_generation_prompt": True, "tools": tools, **options}
        try:
            return str(made.from_string(template).render(given))
        except need("jinja2", "a chat template", "llm").TemplateError as e:
            raise InputError(f"the chat template of {self._folder.path} does not take these messages: {e}") from e

    def _template(self, name: str) -> str:
        """The template of chat_template.jinja, else of tokenizer_config.json; `name` if there are several."""
        template = self._folder.tokenizer.get("chat_template")
        if isinstance(template, list):  # several templates by name
            named = {t["name"]: t["template"] for t in template}
            template = named.get(name, named.get("default", next(iter(named.values()), None)))
        file = Path(self._folder.path) / "chat_template.jinja"
        if file.exists():
            template = file.read_text(encoding="utf-8")
        if not isinstance(template, str):
            raise InputError(
                f"{self._folder.path} has no chat template (tokenizer_config.json or chat_template.jinja): the model "
                "continues text; give a prompt without --chat"
            )
        return template


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML of jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _generation_tag() -> Any:
    """A jinja2 extension for {% generation %}, by which templates mark the model's words for training."""
    jinja2 = need("jinja2", "a chat template", "llm")

    class Generation(need("jinja2.ext", "a chat template", "llm").Extension):  # type: ignore[misc]
        tags: ClassVar[set[str]] = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    return Generation


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, Mapping) else token


def _refuse(message: str) -> None:
    raise need("jinja2", "a chat template", "llm").TemplateError(message)


class Detokenizer:
    """Decodes tokens one by one to pieces of whole characters; the joined pieces are the text.

    tokenizer: decodes. before: preceding tokens, which determine the first space.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        # A tokenizer may treat the first token of a text specially, so a few preceding tokens are decoded too.
        self._tokens = list(before[-4:])
        self._emitted = self._text().rstrip(_REPLACEMENT)  # an incomplete character is emitted once it is complete

    def _text(self) -> str:
        return self._tokenizer.decode(self._tokens)

    def add(self, token: int) -> str:
        """Add a token; return the characters that it completes, or ''."""
        self._tokens.append(token)
        text = self._text()
        if text.endswith(_REPLACEMENT) and len(self._tokens) < 64:
            return ""
        piece = self._emit(text)
        if len(self._tokens) > 16:
            self._tokens = self._tokens[-4:]
            self._emitted = self._text()
        return piece

    def end(self) -> str:
        """Return the text that was held back; incomplete characters are U+FFFD."""
        return self._emit(self._text())

    def _emit(self, text: str) -> str:
        piece, self._emitted = text[len(self._emitted) :], text
        return piece
