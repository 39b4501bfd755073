"""An editor as a language client: capabilities, settings, open documents, requests at a cursor.

It knows nothing of the product but the command that starts it and its section of the settings.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lsp.connection import Connection, Pending, run, until
from tests.lsp.document import Document, Json, StaleEditError, at_cursor
from tests.lsp.script import Script

AUTOMATIC, INVOKED = 2, 1
SOURCE_FOLDERS = tuple(Path(__file__).parents[2] / name for name in ("engine", "lsp"))
# No waiting for more keys, and no calls of the engine that no test asked for.
BASE_SETTINGS: Json = {"debounceMs": 0, "prefetch": False}
EXTENSIONS = {
    "python": ".py",
    "markdown": ".md",
    "javascript": ".js",
    "rust": ".rs",
    "go": ".go",
    "css": ".css",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """What an editor can do."""

    inline: bool = True
    encodings: tuple[str, ...] = ("utf-16",)
    insert_text_modes: tuple[int, ...] = (1, 2)
    default_insert_text_mode: int | None = 2

    def capabilities(self) -> Json:
        """The same as the protocol says it."""
        completion: Json = {
            "completionItem": {"insertTextModeSupport": {"valueSet": [*self.insert_text_modes]}}
        }
        if self.default_insert_text_mode is not None:
            completion["insertTextMode"] = self.default_insert_text_mode
        kinds = ["refactor", "refactor.rewrite", "quickfix", "source"]
        text_document: Json = {
            "synchronization": {"didSave": True},
            "completion": completion,
            "codeAction": {
                "codeActionLiteralSupport": {"codeActionKind": {"valueSet": kinds}},
                "dataSupport": True,
                "resolveSupport": {"properties": ["edit"]},
            },
        }
        if self.inline:
            text_document["inlineCompletion"] = {"dynamicRegistration": False}
        return {
            "general": {"positionEncodings": [*self.encodings]},
            "textDocument": text_document,
            "notebookDocument": {"synchronization": {"dynamicRegistration": False}},
            "window": {"workDoneProgress": True},
            "workspace": {
                "applyEdit": True,
                "configuration": True,
                "workspaceFolders": True,
                "workspaceEdit": {"documentChanges": True},
            },
        }


class Client(Connection):
    """An editor: a server process, open documents, settings, and everything the server said."""

    def __init__(self, folder: Path, profile: Profile | None = None, settings: Json | None = None) -> None:
        super().__init__(folder.parent / f"{folder.name}.log")
        self.folder = folder
        self.profile = profile or Profile()
        self.settings: Json = BASE_SETTINGS | (settings or {})
        self.script = Script(folder.parent / f"{folder.name}.script.json")
        self.documents: dict[str, Document] = {}
        self.capabilities: Json = {}
        self.encoding = "utf-16"
        self._first_settings = self.settings
        self._names = itertools.count(1)

    async def start(self, command: list[str] | None = None, log_level: str = "info") -> Client:
        """Start the server and introduce ourselves."""
        usual = [sys.executable, "-m", "tenon_engine", "--log-level", log_level, "lsp", "--model"]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, SOURCE_FOLDERS)),
            "TENON_RUNTIME": str(self.folder.parent / "runtime"),  # its engine is no other test's
        }
        await self.spawn(command or [*usual, f"scripted:{self.script.path}"], environment)
        await self.initialize()
        await self.barrier()  # what the server asks for at the start is answered before a test begins
        await self.barrier()
        return self

    async def initialize(self, **more: Any) -> Json:
        """Send `initialize` and `initialized`; keep what was agreed."""
        parameters = {
            "processId": os.getpid(),
            "rootUri": self.folder.as_uri(),
            "workspaceFolders": self._folders(),
            "capabilities": self.profile.capabilities(),
            "initializationOptions": self.settings,
        }
        result: Json = await self.request("initialize", parameters | more).result()
        self.capabilities = result["capabilities"]
        self.encoding = self.capabilities.get("positionEncoding", "utf-16")
        self.notify("initialized", {})
        return result

    async def stop(self) -> int:
        """Leave as the protocol says; the exit code of the server."""
        if self.process.returncode is None and not self._reader.done():
            await self.request("shutdown").reply()
            self.notify("exit")
        return await self.ended()

    async def tidy(self) -> None:
        """Make a server that tests share ready for the next one."""
        self.hold.clear()
        self.release()
        await self.cancel_all()
        for document in [*self.documents.values()]:
            self.close(document)
        await self.configure({})
        self.script.says("")
        self.script.forget_calls()
        self.notifications.clear()
        self.requests.clear()

    def answer(self, method: str, params: Json) -> Any:
        """What an editor says to a request of the server."""
        if method in (
            "client/registerCapability",
            "client/unregisterCapability",
            "window/workDoneProgress/create",
        ):
            return None
        if method == "workspace/configuration":
            return [self._section(item.get("section") or "") for item in params["items"]]
        if method == "workspace/workspaceFolders":
            return self._folders()
        if method == "workspace/applyEdit":
            return self._apply(params["edit"])
        return super().answer(method, params)

    def _folders(self) -> list[Json]:
        return [{"uri": self.folder.as_uri(), "name": self.folder.name}]

    def _section(self, section: str) -> Any:
        value: Any = {"tenon": self.settings}
        for part in filter(None, section.split(".")):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _apply(self, edit: Json) -> Json:
        changes = edit.get("documentChanges")
        uri = changes[0]["textDocument"]["uri"] if changes else next(iter(edit["changes"]))
        document = self.documents[uri]
        try:
            self.replace(document, document.with_workspace_edit(edit))
        except StaleEditError as stale:
            return {"applied": False, "failureReason": str(stale)}
        return {"applied": True}

    async def configure(self, settings: Json) -> None:
        """Change the settings, the whole tree, and wait until the server has them."""
        wanted = self._first_settings | settings
        if wanted == self.settings:
            return
        self.settings = wanted
        self.ask_to_reconfigure()
        asked = self.count_of("workspace/configuration")
        await until(lambda: self.count_of("workspace/configuration") > asked)
        await self.barrier()
        await self.barrier()

    def ask_to_reconfigure(self) -> None:
        """Tell the server that settings have changed; it has to ask for them."""
        self.notify("workspace/didChangeConfiguration", {"settings": None})

    def count_of(self, method: str) -> int:
        """How often the server has sent a request or notification."""
        return sum(message["method"] == method for message in (*self.requests, *self.notifications))

    def messages_to_user(self) -> list[str]:
        """What was shown to the user, not just logged."""
        shown = ("window/showMessage", "window/showMessageRequest")
        every = (*self.notifications, *self.requests)
        return [message["params"]["message"] for message in every if message["method"] in shown]

    def open(self, text: str, language: str = "python", uri: str | None = None) -> Document:
        """Open a document, under a new name unless it has one."""
        name = f"file{next(self._names)}{EXTENSIONS.get(language, '.txt')}"
        document = Document(uri or f"{self.folder.as_uri()}/{name}", language, text, self.encoding)
        self.documents[document.uri] = document
        item = {"uri": document.uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return document

    def open_at(self, marked: str, language: str = "python", uri: str | None = None) -> tuple[Document, int]:
        """Open a document written with a cursor."""
        text, offset = at_cursor(marked)
        return self.open(text, language, uri), offset

    def close(self, document: Document) -> None:
        """Close a document."""
        del self.documents[document.uri]
        self.notify("textDocument/didClose", {"textDocument": {"uri": document.uri}})

    def change(self, document: Document, start: int, end: int, new: str) -> None:
        """Replace a span, as typing does."""
        message = self.changed(document, {"range": document.span(start, end), "text": new})
        document.text = document.text[:start] + new + document.text[end:]
        self.send(message)

    def type(self, document: Document, offset: int, new: str) -> int:
        """Type at an offset; where the cursor is then."""
        self.change(document, offset, offset, new)
        return offset + len(new)

    def replace(self, document: Document, text: str) -> None:
        """Replace the whole text."""
        message = self.changed(document, {"text": text})
        document.text = text
        self.send(message)

    def changed(self, document: Document, *changes: Json) -> Json:
        """The message of a new version, for a caller that keeps the text up to date itself."""
        document.version += 1
        head = {"uri": document.uri, "version": document.version}
        params = {"textDocument": head, "contentChanges": [*changes]}
        return {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params}

    def place(self, document: Document, offset: int) -> Json:
        """The parameters that every request at a cursor has."""
        return {"textDocument": {"uri": document.uri}, "position": document.position(offset)}

    def inline(
        self, document: Document, offset: int, trigger: int = AUTOMATIC, selected: Json | None = None
    ) -> Pending:
        """Request an inline completion."""
        pending, message = self.prepare_inline(document, offset, trigger, selected)
        self.send(message)
        return pending

    def prepare_inline(
        self, document: Document, offset: int, trigger: int = AUTOMATIC, selected: Json | None = None
    ) -> tuple[Pending, Json]:
        """The same, not sent yet."""
        context: Json = {"triggerKind": trigger}
        if selected is not None:
            context["selectedCompletionInfo"] = selected
        return self.prepare(
            "textDocument/inlineCompletion", self.place(document, offset) | {"context": context}
        )

    async def ask(
        self, document: Document, offset: int, trigger: int = AUTOMATIC, selected: Json | None = None
    ) -> list[Json]:
        """The items of an inline completion."""
        return await self.inline(document, offset, trigger, selected).items()

    def accept(self, document: Document, item: Json) -> int:
        """Accept an item in full, as an editor does; where the cursor is then."""
        start, end = document.offsets(item["range"])
        self.change(document, start, end, item["insertText"])
        if command := item.get("command"):
            arguments = {"command": command["command"], "arguments": command.get("arguments", [])}
            self.request("workspace/executeCommand", arguments)
        return start + len(item["insertText"])


def running(folder: Path, profile: Profile | None = None, **settings: Any) -> Iterator[Client]:
    """A server for as long as a fixture lives; at its end it must leave with 0 and without a traceback."""
    client = Client(folder, profile, settings)
    run(client.start())
    yield client
    assert run(client.stop()) == 0
    assert "Traceback" not in client.log(), client.log()[-4000:]
