"""A result for people: one line for a prompt, and a page for a notebook.

What a command wrote, and what its code showed, comes from whoever is sandboxed, and a notebook is a web page with the
reader's rights. So text is escaped, pictures are `img` elements (where a browser runs no script, not even of an SVG),
and HTML stands in a frame with an empty `sandbox` attribute: no scripts, no forms, no access to the page, and by its
policy nothing is loaded from elsewhere.
"""

import base64
from typing import TYPE_CHECKING, Final

from ringfence.values.annotate import violation_lines
from ringfence.values.display import DisplayData
from ringfence.values.remedy import Door
from ringfence.values.sizes import show_size

if TYPE_CHECKING:
    from ringfence.values.outcome import Result

_LINE_MAX: Final = 60
"""Characters of output in a line: what fits beside the rest on a terminal."""
_PAGE_MAX: Final = 20_000
"""Characters of output on a page: a notebook stays usable; the rest is in the result."""
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PRE: Final = 'style="margin:0;white-space:pre-wrap"'


def line(result: "Result") -> str:
    """What a prompt shows: how it ended, how long it took, and the beginning of what it said."""
    said = [f"{result.ending}" if not result.blocked else "blocked"]
    if result.exception is not None:
        said.append(_cut(str(result.exception)))
    elif result.blocked and result.blocked_reason is not None:
        said.append(_cut(result.blocked_reason))
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text:
            said.append(f"{name} {_cut(text)}")
    if result.results:
        last = result.results[-1].text
        said.append(f"{len(result.results)} shown" if last is None else f"shown {_cut(last)}")
    if result.usage.wall_seconds:
        said.append(f"{result.usage.wall_seconds:.3g} s")
    if result.wall is not None:
        said.append(result.wall.name)
    return f"<Result {', '.join(said)}>"


def page(result: "Result") -> str:
    """HTML that a notebook may show, whatever was run."""
    parts = [_head(result)]
    parts += [_output(name, text) for name, text in (("stdout", result.stdout), ("stderr", result.stderr)) if text]
    if result.exception is not None and result.exception.traceback.strip() not in result.stderr:
        parts.append(_output("exception", result.exception.traceback))
    parts += [_display(shown) for shown in result.results]
    if result.violations:
        lines = "".join(f"<li>{_escaped(text)}</li>" for text in violation_lines(result.violations, Door.LIBRARY))
        parts.append(f'<ul style="margin:0;color:#b35900">{lines}</ul>')
    return f'<div class="ringfence-result">{"".join(parts)}</div>'


def _head(result: "Result") -> str:
    colour = "#2e7d32" if result.ok else "#c62828"
    facts = [f"{result.usage.wall_seconds:.3g} s"] if result.usage.wall_seconds else []
    if result.usage.peak_memory_bytes:
        facts.append(show_size(result.usage.peak_memory_bytes))
    if result.wall is not None:
        facts.append(result.wall.name)
    small = f" <small>{_escaped(', '.join(facts))}</small>" if facts else ""
    return f'<div><b style="color:{colour}">{_escaped(str(result.ending))}</b>{small}</div>'


def _output(name: str, text: str) -> str:
    more = f"\n... {len(text) - _PAGE_MAX} more characters" if len(text) > _PAGE_MAX else ""
    return f'<pre title="{name}" {_PRE}>{_escaped(text[:_PAGE_MAX] + more)}</pre>'


def _display(shown: DisplayData) -> str:
    for mime in _PICTURES:
        form = shown.get(mime)
        if form:
            data = form if isinstance(form, bytes) else form.encode()
            return f'<img alt="" src="data:{mime};base64,{base64.b64encode(data).decode()}">'
    if shown.html is not None:
        framed = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">{shown.html}'
        return (
            f'<iframe sandbox="" referrerpolicy="no-referrer" srcdoc="{_escaped(framed)}" '
            'style="border:0;width:100%;height:20em"></iframe>'
        )
    text = shown.text if shown.text is not None else f"<{', '.join(shown.types)}>"
    return _output("shown", text)


def _escaped(text: str) -> str:
    """As `html.escape`, whose module brings a table of all named characters with it: every start would pay for it."""
    for char, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27")):
        text = text.replace(char, f"&{name};")
    return text


def _cut(text: str) -> str:
    return repr(text) if len(text) <= _LINE_MAX else repr(text[: _LINE_MAX - 3]) + "..."
