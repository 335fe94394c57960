"""The blocking faces of an agent's tools. What they are given may be of either face."""

from typing import Any

from ringfence.sync.facade import Facade, blocking, inside, like, unwrapped, unwrapped_all
from ringfence.tools.bash import BashTool as AsyncBashTool
from ringfence.tools.editing import FileEditTool as AsyncFileEditTool
from ringfence.tools.files import FileReadTool as AsyncFileReadTool
from ringfence.tools.files import FileWriteTool as AsyncFileWriteTool
from ringfence.tools.run_code import RunCodeTool as AsyncRunCodeTool
from ringfence.tools.searching import FileListTool as AsyncFileListTool
from ringfence.tools.searching import SearchTool as AsyncSearchTool
from ringfence.tools.world.base import ToolSpec
from ringfence.tools.world.interface import WorldInterface as AsyncWorldInterface


class BashTool(Facade[AsyncBashTool]):
    """An agent's shell, for code that does not use asyncio; as `ringfence.BashTool`."""

    name = AsyncBashTool.name

    @like(AsyncBashTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncBashTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncBashTool.execute)


class RunCodeTool(Facade[AsyncRunCodeTool]):
    """Runs code in the manager's session, for code that does not use asyncio; as `ringfence.RunCodeTool`."""

    name = AsyncRunCodeTool.name

    @like(AsyncRunCodeTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncRunCodeTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncRunCodeTool.execute)


class FileReadTool(Facade[AsyncFileReadTool]):
    """`file_read`, for code that does not use asyncio; as `ringfence.FileReadTool`."""

    name = AsyncFileReadTool.name
    changes = AsyncFileReadTool.changes

    @like(AsyncFileReadTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncFileReadTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncFileReadTool.execute)


class FileWriteTool(Facade[AsyncFileWriteTool]):
    """`file_write`, for code that does not use asyncio; as `ringfence.FileWriteTool`."""

    name = AsyncFileWriteTool.name
    changes = AsyncFileWriteTool.changes

    @like(AsyncFileWriteTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncFileWriteTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncFileWriteTool.execute)


class FileEditTool(Facade[AsyncFileEditTool]):
    """`file_edit`, for code that does not use asyncio; as `ringfence.FileEditTool`."""

    name = AsyncFileEditTool.name
    changes = AsyncFileEditTool.changes

    @like(AsyncFileEditTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncFileEditTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncFileEditTool.execute)
    apply = blocking(AsyncFileEditTool.apply)


class FileListTool(Facade[AsyncFileListTool]):
    """`file_list`, for code that does not use asyncio; as `ringfence.FileListTool`."""

    name = AsyncFileListTool.name
    changes = AsyncFileListTool.changes

    @like(AsyncFileListTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncFileListTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncFileListTool.execute)


class SearchTool(Facade[AsyncSearchTool]):
    """`search`, for code that does not use asyncio; as `ringfence.SearchTool`."""

    name = AsyncSearchTool.name
    changes = AsyncSearchTool.changes

    @like(AsyncSearchTool.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncSearchTool(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncSearchTool.execute)
    list = blocking(AsyncSearchTool.list)


class WorldInterface(Facade[AsyncWorldInterface]):
    """Every tool behind one door, for code that does not use asyncio; as `ringfence.WorldInterface`."""

    @like(AsyncWorldInterface.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(AsyncWorldInterface(*unwrapped_all(args), **unwrapped(named)))

    execute = blocking(AsyncWorldInterface.execute)
    add = inside(AsyncWorldInterface.add)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What is offered, as a model sees it."""
        return self._wrapped.tools
