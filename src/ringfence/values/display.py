"""What code shows besides its output: values, figures, tables; and how it failed."""

from ringfence.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DisplayData:
    """One thing that code showed, in one or several forms by MIME type, as notebooks name them."""

    forms: tuple[tuple[str, str | bytes], ...]
    """Text for text types, bytes for images and the like."""
    is_value: bool = False
    """Whether it is the value of the last expression; else the code asked to have it shown."""

    def get(self, mime: str) -> str | bytes | None:
        return next((form for name, form in self.forms if name == mime), None)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.forms)

    @property
    def text(self) -> str | None:
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        return self._text("text/latex")

    @property
    def json(self) -> str | None:
        """The JSON text, not parsed."""
        return self._text("application/json")

    @property
    def png(self) -> bytes | None:
        form = self.get("image/png")
        return form if isinstance(form, bytes) else None

    def _text(self, mime: str) -> str | None:
        form = self.get(mime)
        return form if isinstance(form, str) else None


@dataclass(frozen=True, slots=True)
class CodeError:
    """An exception that ended a piece of code."""

    type: str
    value: str
    traceback: str
    """The code's own lines, without ours."""

    def __str__(self) -> str:
        return f"{self.type}: {self.value}" if self.value else self.type
