"""What a value looks like: as text, and in the richer forms that notebooks know; figures.

A part of one text: `__init__.py`.
"""

# ruff: noqa: SIM105 - contextlib would add a megabyte
from __future__ import annotations

import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringfence.engines.drivers.python.beginning import (
        MAX_FRAME_BYTES,
        MAX_PRETTY,
        MAX_TEXT,
        encode,
        frame,
        is_child,
        modules,
        parts,
        send,
    )
    from ringfence.engines.drivers.python.imports import stdlib

# --- displaying -------------------------------------------------------------------------------------------------------

LONG = frozenset({list, tuple, dict, set, frozenset, str, bytes})
PLAIN = LONG | {int, float, bool, complex}  # have no form but their repr
CANARY = "_ipython_canary_method_should_not_exist_"  # who has this has everything, such as a mock
METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_json_", "application/json"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
)


class Forms:
    """One thing in all its forms, by MIME type."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def add(self, mime: str, data: Any) -> None:
        if isinstance(data, tuple) and len(data) == 2:
            data = data[0]  # the other half is metadata
        if data is None:
            return
        if is_binary(mime):
            self.data[mime] = stdlib("binascii").a2b_base64(data) if isinstance(data, str) else bytes(data)
        elif isinstance(data, (bytes, bytearray)):
            self.data[mime] = bytes(data)
        elif isinstance(data, str):
            self.data[mime] = encode(data)
        elif mime.endswith("json"):
            self.data[mime] = encode(stdlib("json").dumps(data, default=str))
        else:
            self.data[mime] = encode(str(data))

    def frame(self, kind: bytes) -> bytes:
        body = parts(self.data)
        if len(body) > MAX_FRAME_BYTES:
            names = ", ".join(self.data)
            note = f"(not shown: {names} take {len(body)} bytes, at most {MAX_FRAME_BYTES} can be shown at once)"
            body = parts({"text/plain": encode(note)})
        return frame(kind, body)


def is_binary(mime: str) -> bool:
    return mime == "application/pdf" or (mime.startswith(("image/", "audio/", "video/")) and mime != "image/svg+xml")


def forms_of(value: Any) -> Forms:
    forms = Forms()
    if type(value) not in PLAIN and not isinstance(value, type):
        if not is_figure(value):
            add_rich_forms(forms, value)
        elif value.axes or value.lines:
            try:
                forms.add("image/png", png_of(value))
            except Exception as error:
                forms.add(
                    "text/plain", f"{plain(value)} could not be drawn: {type(error).__name__}: {plain_str(error)}"
                )
    if "text/plain" not in forms.data:
        forms.data["text/plain"] = encode(plain(value))
    return forms


def add_rich_forms(forms: Forms, value: Any) -> None:
    """Ask by the methods that IPython asks by. One that fails is one form less."""
    if attribute(value, CANARY) is not None:
        return
    ask = attribute(value, "_repr_mimebundle_")
    if ask is not None:
        try:
            bundle = ask(include=None, exclude=None)
            add_bundle(forms, bundle)
        except Exception:
            pass
    for name, mime in METHODS:
        if mime in forms.data or (mime == "image/jpeg" and "image/png" in forms.data):
            continue
        ask = attribute(value, name)
        if ask is not None:
            try:
                forms.add(mime, ask())
            except Exception:
                pass


def add_bundle(forms: Forms, bundle: Any) -> None:
    for mime, data in (bundle[0] if isinstance(bundle, tuple) else bundle or {}).items():
        forms.add(str(mime), data)


def attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def plain(value: Any) -> str:
    try:
        kind = type(value)
        text = repr(beginning(value, kind) if kind in LONG else value)
        if len(text) > 80 and len(text) <= MAX_PRETTY and kind in (list, tuple, dict, set, frozenset):
            text = stdlib("pprint").pformat(value, width=100, compact=True, sort_dicts=False)
    except Exception as error:
        return f"<{type(value).__name__} object whose repr() raised {type(error).__name__}: {plain_str(error)}>"
    return cut(text)


def beginning(value: Any, kind: type) -> Any:
    """As much of something long as can show, for the whole may take minutes to write out."""
    if len(value) <= MAX_TEXT:  # each element takes at least three characters, but may take more
        return value
    if kind in (list, tuple, str, bytes):
        return value[: MAX_TEXT + 1]
    islice = stdlib("itertools").islice
    return dict(islice(value.items(), MAX_TEXT)) if kind is dict else kind(islice(value, MAX_TEXT))


def cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT] + f"\n... (cut after {MAX_TEXT} characters)"


def plain_str(error: BaseException) -> str:
    try:
        return cut(str(error))
    except Exception:
        return "<exception str() failed>"


def display(*values: Any, raw: bool = False, display_id: Any = None, **_: Any) -> Handle | None:
    """Show each value in its richest forms."""
    for value in values:
        if is_child:
            print(plain(value))
        elif raw:
            publish_display_data(value)
        else:
            send(forms_of(value).frame(b"display"))
            if is_figure(value):
                close_figure(value)
    return None if display_id is None else Handle()


class Handle:
    """What was shown stays as it is; the new state is shown after it."""

    def update(self, value: Any, **options: Any) -> None:
        display(value, **options)

    display = update


def publish_display_data(data: dict[str, Any], *_: Any, **__: Any) -> None:
    forms = Forms()
    add_bundle(forms, data)
    if not is_child:
        send(forms.frame(b"display"))


def clear_output(*_: Any, **__: Any) -> None:
    """What has been shown stays shown."""


def get_ipython() -> None:
    """There is none."""


class Shown:
    """Something whose form is known: a text or the content of a file."""

    mime = "text/plain"

    def __init__(self, data: Any = None, url: str | None = None, filename: str | None = None, **_: Any) -> None:
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data
        self.url = url
        self.filename = filename

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {self.mime: self.data}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object>"


class HTML(Shown):
    mime = "text/html"


class Markdown(Shown):
    mime = "text/markdown"


class Latex(Shown):
    mime = "text/latex"


class JSON(Shown):
    mime = "application/json"


class SVG(Shown):
    mime = "image/svg+xml"


class Image(Shown):
    STARTS = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))

    def __init__(self, data: Any = None, url: str | None = None, filename: str | None = None, **options: Any) -> None:
        if isinstance(data, str):  # IPython takes a path or an address here, too
            if "://" in data:
                data, url = None, data
            else:
                data, filename = None, data
        super().__init__(data, url, filename, **options)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.data is None:
            return {"text/html": f'<img src="{self.url}"/>'}
        for start, mime in self.STARTS:
            if self.data.startswith(start):
                return {mime: self.data}
        return {"image/svg+xml" if b"<svg" in self.data[:1000] else "image/png": self.data}


shown_names: dict[str, Any] = {
    "display": display,
    "HTML": HTML,
    "Markdown": Markdown,
    "Latex": Latex,
    "JSON": JSON,
    "Image": Image,
    "SVG": SVG,
}


# --- figures ----------------------------------------------------------------------------------------------------------


def is_figure(value: Any) -> bool:
    module = modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def png_of(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


def close_figure(figure: Any) -> None:
    """What was shown is not shown again at the end of the cell."""
    pyplot = modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)


def open_figures() -> list[bytes]:
    """The frames of all open figures, which are closed."""
    pyplot: Any = modules.get("matplotlib.pyplot")
    try:
        numbers = pyplot.get_fignums()
    except AttributeError:  # its import did not get far
        return []
    frames = []
    try:
        for number in numbers:
            frames.append(forms_of(pyplot.figure(number)).frame(b"display"))
    finally:
        if numbers:
            pyplot.close("all")
    return frames


def show_figures(*_: Any, **__: Any) -> None:
    """Stands in for pyplot.show."""
    frames = open_figures()
    if frames and not is_child:
        send(b"".join(frames))
