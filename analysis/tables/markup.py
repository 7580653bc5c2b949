"""Texts of cells without markup: Markdown, LaTeX and HTML as tables of results use them."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

# Signs in place of LaTeX commands.
SIGNS = {
    **{"pm": "±", "mp": "±", "uparrow": "↑", "Uparrow": "↑", "downarrow": "↓", "Downarrow": "↓", "nearrow": "↑"},
    **{"searrow": "↓", "rightarrow": ">", "to": ">", "Rightarrow": ">", "longrightarrow": ">", "leftarrow": "<"},
    **{"leftrightarrow": "↔", "times": "×", "cdot": "·", "checkmark": "✓", "cmark": "✓", "xmark": "✗", "dag": "†"},
    **{"dagger": "†", "ddag": "‡", "ddagger": "‡", "ast": "*", "star": "*", "S": "§", "alpha": "α", "beta": "β"},
    **{"gamma": "γ", "delta": "δ", "Delta": "Δ", "epsilon": "ε", "varepsilon": "ε", "lambda": "λ", "mu": "μ"},
    **{"tau": "τ", "sigma": "σ", "theta": "θ", "rho": "ρ", "pi": "π", "phi": "φ", "ell": "ℓ", "infty": "∞"},
    **{"leq": "≤", "geq": "≥", "le": "≤", "ge": "≥", "approx": "≈", "sim": "~", "dots": "...", "ldots": "..."},
    **{"textbackslash": "\\", "quad": " ", "qquad": " ", "newline": " ", "&": "&", "%": "%", "$": "$", "#": "#"},
    **{"_": "_", "{": "", "}": "", " ": " ", ",": " ", ";": " ", ":": " ", "!": "", "/": "", "-": "", "\\": " "},
    **{"textbar": "|", "textless": "<", "textgreater": ">", "textquotedbl": '"', "textasciicircum": "^"},
    **{"textpm": "±", "textuparrow": "↑", "textdownarrow": "↓", "bullet": "•", "textasciitilde": "~", "|": "|"},
}
# Commands whose first arguments are no text: the number of these.
DROPPED_ARGUMENTS = {
    **{"cite": 1, "citep": 1, "citet": 1, "citeauthor": 0, "citealp": 1, "citealt": 1, "citeyear": 1, "footnote": 1},
    **{"parencite": 1, "textcite": 1, "autocite": 1, "ref": 1, "eqref": 1, "label": 1, "tnote": 1, "tablefootnote": 1},
    **{"footnotemark": 0, "color": 1, "textcolor": 1, "cellcolor": 1, "rowcolor": 1, "columncolor": 1, "colorbox": 1},
    **{"hspace": 1, "vspace": 1, "hspace*": 1, "rotatebox": 1, "scalebox": 1, "resizebox": 2, "raisebox": 1, "rule": 2},
    **{"fontsize": 2, "setlength": 2, "phantom": 1, "hphantom": 1, "vphantom": 1, "href": 1, "adjustbox": 1},
    **{"parbox": 1, "definecolor": 3, "cref": 1, "Cref": 1, "refstepcounter": 1, "arrayrulecolor": 1, "url": 0},
}
MOST_OF_PARAGRAPH = 12  # lines just above a table
MOST_ABOVE = 200  # lines up to the heading of a table
SPREAD_COMMANDS = {"std", "stdev", "stddev", "sd", "stds", "stdv", "pms", "spm", "err", "sem", "se", "ste", "pmstd"}
_BOLD = re.compile(
    r"\*\*|__|<b>|<b |<strong|\\textbf|\\mathbf|\\bf\b|\\bfseries|\\boldsymbol|\\bm\b|font-weight: ?bold"
)
_COMMAND = re.compile(r"\\(?:([a-zA-Z]+\*?)\s*|(.))", re.S)  # blanks behind a name are no text
_SILENT = {
    *("hline", "midrule", "centering", "small", "footnotesize", "scriptsize", "tiny", "hfill", "noindent", "null"),
    *("textbf", "textit", "textrm", "texttt", "textsc", "emph", "underline", "mathbf", "mathrm", "boldsymbol"),
    *("bfseries", "itshape", "text", "mbox", "makecell", "shortstack", "thead", "multirow", "multicolumn", "xspace"),
}
_NAMED_BY_COMMAND = re.compile(r"\s*\\([a-zA-Z]{2,})(?=-(?![0-9.]+\s*$))")
_NUMBER_BEFORE = re.compile(r"[0-9.]\s*%?[)}\]*]*\s*$")
_ONLY_NUMBER = re.compile(r"\s*\(?[0-9]*\.?[0-9]+\s*%?\)?\s*")
_NAME_BEFORE = re.compile(r"[^\s\d]{2,}[^\W\d_]$")  # `Whisper-S`; no `R`, which may be squared
_NOTE_NUMBERS = re.compile(r"\d{1,2}(?:\s*,\s*\d{1,2})*")
_ONLY_LETTERS = re.compile(r"[a-zA-Z](?:[, ]*[a-zA-Z])?")  # of footnotes
_EMOJI = re.compile(r"(?<![A-Za-z_]):([0-9]*[a-z][a-z0-9_+-]*):(?!\w)")  # by name
_TITLE = re.compile(r"[*_\s]*(?:table\b|tab\.|: \w)", re.I)  # of a table of Markdown
_REPORTED = re.compile(r"\b(?:metrics?|reported?|measured?)\b|^\W*(?:error|accuracy|[wcedp]er)\b", re.I)
_TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>", re.S)


def is_bold(raw: str) -> bool:
    """Return True if a cell's markup makes it bold."""
    return bool(_BOLD.search(raw))


# Plain signs in place of typographic twins.
_TWINS = str.maketrans(
    {"\u2212": "-", "\u00a0": " ", "\u200b": "", "\ufeff": "", "\u2019": "'", "\u2206": "Δ", "↗": "↑", "↘": "↓"}
    | {"（": "(", "）": ")", "％": "%", "：": ":", "，": ","}
)


def squeeze(text: str) -> str:
    """Return a text with single blanks, and plain signs in place of typographic twins."""
    return " ".join(text.translate(_TWINS).split())


# --- Markdown and HTML ------------------------------------------------------------------------------------------------


def clean_markdown(raw: str) -> str:
    """Return the text of a Markdown cell, which may hold HTML and formulas."""
    text = re.sub(r"\\([*_|`~#\[\]()<>!{}+.$&-])", lambda match: _hide(match.group(1)), raw)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for _ in range(2):  # a link may hold an image
        text = re.sub(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^()]*(?:\([^()]*\)[^()]*)*\)", r"\1", text)
    text = re.sub(r"\[\^[^\]]+\]", "", text)
    text = clean_html(text)
    text = re.sub(r"(\*\*\*|\*\*|~~)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = re.sub(r"(?<!\w)(__|_)(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", text)
    text = re.sub(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=[^\s*])\*(?![\w*])", r"\1", text)
    text = re.sub(r"^\s*\*(\w[^*]*)\*(?=\w)", r"\1", text)  # `*mini*ImageNet`
    text = re.sub(r"`+([^`]*)`+", r"\1", text)
    return squeeze(_unhide(text))


def words_around(lines: Sequence[str], last: int, first_below: int) -> str:
    """Return the words that say what a table of Markdown is, the nearest first, a line each.

    A title below it, the words just above it, and the heading of its section. last: number of the line above it.
    """
    above: list[str] = []  # of the paragraph: the last line, and those that say what is reported
    for number in range(last, max(last - MOST_OF_PARAGRAPH, -1), -1):
        line = lines[number]
        is_end = bool(above) if not line.strip() else line.strip().startswith("|")  # of another table
        if is_end or (not above and number < last - 3):
            break
        if not above or _REPORTED.search(line):
            above += filter(None, [_plain_title(line)])
    headings = [line for line in lines[max(last - MOST_ABOVE, 0) : last + 1] if line.startswith("#")]
    below = [line for line in lines[first_below : first_below + 2] if _TITLE.match(line)]
    titles = [*([] if above and _TITLE.match(above[0]) else below[:1]), *above, *headings[-1:]]
    return "\n".join(dict.fromkeys(filter(None, map(_plain_title, titles))))


def _plain_title(line: str) -> str:
    return squeeze(clean_markdown(line.lstrip("# ")))[:300]


def _hide(sign: str) -> str:
    return chr(0xE000 + ord(sign))


def _unhide(text: str) -> str:
    return re.sub(r"[\ue000-\ue0ff]", lambda match: chr(ord(match.group()) - 0xE000), text)


def clean_html(raw: str) -> str:
    """Return the text of an HTML cell, with formulas resolved. A number below a number is its deviation."""
    text = re.sub(r"<br\s*/?>", " ", raw, flags=re.I)
    text = re.sub(r"<(del|s|strike|script|style)\b[^>]*>.*?</\1>", " ", text, flags=re.S | re.I)
    text = re.sub(r"<img\b[^>]*>", " ", text, flags=re.I)
    text = re.sub(r"<(sub|sup)\b[^>]*>(.*?)</\1>", _lowered, text, flags=re.S | re.I)
    text = re.sub(r"<(?:sub|sup)\b[^>]*>", " ", text, flags=re.I)  # never closed
    text = _TAG.sub("", text)
    text = html.unescape(html.unescape(text))
    text = _EMOJI.sub(_sign_of_emoji, text)
    if "$" in text or "\\(" in text:
        text = re.sub(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)", lambda m: clean_formula(m.group(1) or m.group(2)), text)
    return squeeze(text)


def _sign_of_emoji(match: re.Match[str]) -> str:
    """Return a cross, a tick or an arrow for the emoji that show one; a blank for others."""
    signs = {"x": "✗", "arrow_up": "↑", "arrow_down": "↓"}
    return signs.get(match[1], "✓" if "check" in match[1] else " ")


def _lowered(match: re.Match[str]) -> str:
    """Return a subscript or superscript as it reads in a line."""
    tag, inner = match.group(1).lower(), _TAG.sub("", match.group(2))
    text = html.unescape(html.unescape(inner))
    before = _TAG.sub("", match.string[: match.start()])
    is_note = tag == "sup" and bool(_ONLY_LETTERS.fullmatch(text))
    if tag == "sup" and _NAME_BEFORE.search(before) and _NOTE_NUMBERS.fullmatch(text):
        return " "
    if not (_NUMBER_BEFORE.search(before) and (is_note or _ONLY_NUMBER.fullmatch(text))):
        is_word = len(text) > 2 and text.isalpha() and before[-1:].isalnum()
        return f" {text}" if is_word else text  # `AP<sup>test</sup>`
    return f" ±{text} " if tag == "sub" else " "  # a number above a number marks a footnote


# --- LaTeX ------------------------------------------------------------------------------------------------------------


def clean_formula(raw: str) -> str:
    """Return the text of a formula; blanks between its digits are gone."""
    text = clean_latex(f"${raw}$")
    if re.fullmatch(r"[0-9](?: ?[0-9])* ?\. ?[0-9](?: ?[0-9])*", text):
        return text.replace(" ", "")
    return text


def clean_latex(raw: str) -> str:
    """Return the text of a LaTeX cell. A number below a number is its deviation."""
    out: list[str] = []
    named = _NAMED_BY_COMMAND.match(raw)  # `\\ours-Large`
    if named is not None and _is_word(named[1]):
        out.append(named[1])
    _walk(raw, out)
    text = "".join(out).replace("~", " ").replace("``", "'").replace("''", "'")
    text = squeeze(text)
    if not text:  # a macro of the paper, such as \\ours or a number
        text = next(filter(_is_word, re.findall(r"\\([a-zA-Z]{3,})", raw)), "")
    return re.sub(r"(?<=[0-9]) (?=[.][0-9])|(?<=[0-9][.]) (?=[0-9])", "", text)


def _is_word(command: str) -> bool:
    """Return True for a command that shows something, as far as is known: none of spaces, rules and notes."""
    return command not in DROPPED_ARGUMENTS and command not in SIGNS and command not in _SILENT


def _walk(raw: str, out: list[str]) -> None:
    """Append the text of LaTeX source."""
    position = 0
    while position < len(raw):
        sign = raw[position]
        if sign == "\\":
            position = _command(raw, position, out)
        elif sign == "_" and _joins_words(raw, position):
            out.append(sign)
            position += 1
        elif sign in "_^":
            argument, position = take_argument(raw, position + 1)
            _append_script(sign, argument, out)
        elif sign in "{}$":
            position += 1
        elif sign == "~":
            out.append(" ")
            position += 1
        else:
            out.append(sign)
            position += 1


def _joins_words(raw: str, position: int) -> bool:
    """Return True for a sign between letters of a name outside of formulas, which scripts forget to escape."""
    before, behind = raw[max(position - 2, 0) : position], raw[position + 1 : position + 2]
    is_between = len(before) == 2 and before.isalpha() and behind.isalnum()
    return is_between and raw.count("$", 0, position) % 2 == 0  # last, as it reads the whole cell


def _command(raw: str, position: int, out: list[str]) -> int:
    """Append what a command shows, and return the position behind it."""
    match = _COMMAND.match(raw, position)
    if match is None:
        return position + 1
    name, position = match.group(1) or match.group(2), match.end()
    if name in SPREAD_COMMANDS:
        argument, position = take_argument(raw, position)
        out.append(f" ±{clean_latex(argument).removeprefix('±')}")
        return position
    if name in DROPPED_ARGUMENTS:
        position = skip_option(raw, position)
        for _ in range(DROPPED_ARGUMENTS[name]):
            _, position = take_argument(raw, skip_option(raw, position))
        return position
    if name in ("makecell", "shortstack", "thead", "multirowcell", "specialcell", "textsuperscript"):
        argument, position = take_argument(raw, skip_option(raw, position))
        _append_script("^" if name == "textsuperscript" else "", argument.replace("\\\\", " "), out)
        return position
    if name == "textsubscript":
        argument, position = take_argument(raw, position)
        _append_script("_", argument, out)
        return position
    if name in SIGNS:
        out.append(SIGNS[name])
        return position
    if len(name) == 1 and name in "'`\"^~=.":  # accents are left out
        return position
    before = raw[match.start() - 1 : match.start()]
    if raw[position : position + 1] == "{" and before.isdigit():
        out.append(" ")  # an unknown command between two numbers keeps them apart
    return position


def _append_script(sign: str, argument: str, out: list[str]) -> None:
    """Append a subscript or superscript."""
    text = clean_latex(argument)
    is_note = sign == "^" and bool(_ONLY_LETTERS.fullmatch(text))
    is_number = bool(_NUMBER_BEFORE.search("".join(out))) and (is_note or bool(_ONLY_NUMBER.fullmatch(text)))
    if is_number and sign == "_":
        out.append(f" ±{text.strip()}")
    elif sign == "^" and _NAME_BEFORE.search("".join(out)) and _NOTE_NUMBERS.fullmatch(text):
        return
    elif not (is_number and sign == "^"):
        out.append(text)


def skip_option(raw: str, position: int) -> int:
    """Return the position behind an argument in square brackets, if one is next."""
    while raw[position : position + 1] == "[" and "]" in raw[position:]:
        position = raw.index("]", position) + 1
    return position


def take_argument(raw: str, position: int) -> tuple[str, int]:
    """Return the argument at a position, in braces or a single sign, and the position behind it."""
    while position < len(raw) and raw[position].isspace():
        position += 1
    if position >= len(raw):
        return "", position
    if raw[position] == "\\":
        match = _COMMAND.match(raw, position)
        end = match.end() if match else position + 1
        return raw[position:end], end
    if raw[position] != "{":
        return raw[position], position + 1
    return brace_group(raw, position)


def brace_group(raw: str, position: int) -> tuple[str, int]:
    """Return the text within braces that open at a position, and the position behind them."""
    depth = 0
    for end in range(position, len(raw)):
        if raw[end] == "\\":
            continue
        is_escaped = end > 0 and raw[end - 1] == "\\" and not (end > 1 and raw[end - 2] == "\\")
        if raw[end] == "{" and not is_escaped:
            depth += 1
        elif raw[end] == "}" and not is_escaped:
            depth -= 1
            if depth == 0:
                return raw[position + 1 : end], end + 1
    return raw[position + 1 :], len(raw)


# --- names ------------------------------------------------------------------------------------------------------------

_CITATION = re.compile(r"(?<=[\w)+\]'*†‡])\s*\[\d{1,3}(?:\s*[,–-]\s*\d{1,3})*\]\s*(?=[*†‡§]*$)|\s+\[\d{1,3}\](?=\s)")


def without_citation(name: str) -> str:
    """Return a name without a citation in square brackets."""
    if re.search(r"[_-]\[", name):
        return name
    return squeeze(_CITATION.sub("", name)) or name
