"""search_documents: passages of the documents in one folder, each with the place to cite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ..definition import Tool, tool
from ..document_index import DocumentIndex
from ..file_root import FileRoot

_MAX_PASSAGES = 4
_MAX_PROBLEMS = 5


def document_tool(root: Path, index: DocumentIndex | None = None) -> Tool:
    """Return search_documents for the folder `root`; raises FileAccessError if it is none.

    Args:
        index: where its words are kept; by default below laploop's cache folder.
    """
    known = DocumentIndex.of(FileRoot(root)) if index is None else index

    @tool(group="documents", timeout_s=120.0)
    def search_documents(query: Annotated[str, "Words to look for, e.g. heating costs 2024"]) -> dict[str, Any]:
        """Look up facts in the user's own documents: notes, meetings, contracts, letters, PDFs. Returns passages, each
        with its source to cite.
        """
        found = known.search(query, most=_MAX_PASSAGES)
        value: dict[str, Any] = {
            "passages": [{"source": passage.source, "text": passage.text} for passage in found.passages],
            "documents": found.n_documents,
        }
        if not found.passages:
            value["hint"] = "none of these words is in the documents; try others"
        if found.problems:
            more = [f"… {len(found.problems) - _MAX_PROBLEMS} more"] if len(found.problems) > _MAX_PROBLEMS else []
            value["not_read"] = [*found.problems[:_MAX_PROBLEMS], *more]
        if found.n_waiting:
            value["incomplete"] = f"{found.n_waiting} new documents are not read yet; search again to go on"
        return value

    return search_documents
