// OpenCL C with light highlighting: comments, preprocessor lines, words of the language, numbers.

const WORDS = new Set(
  ("kernel __kernel global __global local __local constant __constant private const restrict volatile static inline void bool " +
    "char uchar short ushort int uint long ulong size_t half float double struct typedef return if else for while do break continue " +
    "switch case default sizeof image2d_t sampler_t read_only write_only barrier").split(" "),
);
const TOKENS = /(\/\*[^]*?\*\/|\/\/[^\n]*)|(^[ \t]*#(?:\\\n|[^\n])*)|("(?:\\.|[^"\\\n])*")|([A-Za-z_]\w*)|(\b\d[\w.]*(?:[eE][+-]?\d+\w*)?)/gm;
const VECTOR = /^(?:u?char|u?short|u?int|u?long|half|float|double)(?:2|3|4|8|16)$/;

function highlighted(text) {
  const code = el("pre", { tabindex: "0", "aria-label": "Source" });
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const [token, comment, macro, string, word] = match;
    let kind = "n";
    if (comment) kind = "c";
    else if (macro || string) kind = "m";
    else if (word) kind = WORDS.has(word) || VECTOR.test(word) ? "k" : "";
    if (!kind) continue;
    code.append(text.slice(end, match.index), el("span", { class: kind }, token));
    end = match.index + token.length;
  }
  code.append(text.slice(end));
  return code;
}
